# frozen_string_literal: true

require "sidekiq/component"
require_relative "../jobs/stall_watch"

module Heddle
  module SidekiqSupport
    # Runs the processors of one capsule as tasks of one thread.
    #
    # A processor that has no job costs no fiber. A few at a time get a task in which they fetch, for themselves and for
    # idle ones: no job is fetched that could not start at once. A processor that has got a job lets another one fetch,
    # runs the job in the same task, and is idle again.
    #
    # A task runs one job, and is started only where no job has run: fiber-locals and Fiber storage of a job do not
    # reach the next.
    #
    # @api private
    class Dispatcher
      include ::Sidekiq::Component

      # The most processors that fetch at once. While one evaluates the answer from Redis, the other's is on its way.
      # Each keeps a connection waiting; one of two must be left for the jobs.
      FETCHERS = 2
      # Seconds until another try where the system has no room for another fiber.
      RETRY = 1
      # Seconds of cleaning up for tasks that still run when the process exits, before they are cancelled again.
      GRACE = 0.5
      # Seconds for the dispatcher's own task to end, which needs its turn.
      TURN = 0.1
      private_constant :FETCHERS, :RETRY, :GRACE, :TURN

      # @return [Sidekiq::Capsule]
      attr_reader :capsule

      def initialize(capsule)
        @config = capsule.config
        @capsule = capsule
        @idle = []
        @busy = {}.compare_by_identity # processors with a task
        @fetching = 0
        @fetchers = [FETCHERS, capsule.local_redis_pool.connections - 1].min.clamp(1..)
        @reserved = 0 # idle processors for which a job is on its way
        @kept = [] # jobs for idle processors
        @starting = [] # jobs and their processors
        @homeless = [] # jobs to return to their queue once Redis is back
        @returning = nil # the one that is on its way
        @withheld = [] # jobs that killed the thread, to return when the process stops
        @leaving = false
        @changed = EventCount.new
        @stopped = @killed = false
        @lock = Thread::Mutex.new
        @members = 0 # processors that have started and not ended
      end

      # Called by a processor that starts, before it is added. The thread starts with the first one.
      #
      # @return [Thread] in which its tasks run
      def join
        @lock.synchronize do
          @members += 1
          @thread ||= safe_thread("#{capsule.name}/fibers") { run }
        end
      end

      # Called by a processor that ends. The thread ends with the last one.
      #
      # @return [void]
      def unregister
        @lock.synchronize { @members -= 1 }
        wake if @members.zero?
      end

      # Waits for the end of the thread, unless other processors need it.
      #
      # @return [void]
      def await_end(thread)
        thread.join unless @lock.synchronize { thread == @thread && @members > 0 }
      end

      # Lets the thread end with the last task.
      #
      # @return [void]
      def stop
        @stopped = true
        wake
      end

      # Adds a processor without a job. Any thread may call this.
      #
      # @return [void]
      def add(processor)
        @idle << processor
        wake
      end

      # Has the thread look at what has changed.
      #
      # @return [void]
      def wake
        @changed.advance
      end

      # Has the thread retire idle processors that are to end.
      #
      # @return [void]
      def retire_idle
        @leaving = true
        wake
      end

      # Called by a processor that has fetched a job, in its task, before it runs the job.
      #
      # @return [void]
      def fetched
        @fetching -= 1
        hand_out
      end

      # Reserves idle processors while jobs for them are fetched, and leaves one for each fetch that is to start.
      #
      # @param limit [Integer]
      # @yieldparam most [Integer] how many jobs can start: one, and one for each reserved processor
      # @return [Object] the block's value
      def reserve(limit)
        reserved = [@idle.size - @reserved - (@fetchers - @fetching), limit - 1].min
        reserved = 0 if reserved.negative?
        @reserved += reserved
        yield 1 + reserved
      ensure
        @reserved -= reserved
      end

      # @param units [Array] of work, for idle processors
      # @return [void]
      def keep(units)
        @kept.concat(units)
      end

      # Returns a job to its queue, as soon as Redis takes it.
      #
      # @param unit [Object] of work
      # @return [void]
      def give_back(unit)
        @homeless << unit
        wake
      end

      # Returns a job that killed the thread to its queue, when the process stops: it must not do so for ever.
      #
      # @param unit [Object] of work
      # @return [void]
      def withhold(unit)
        @withheld << unit
      end

      # Called once the thread is to end.
      #
      # @param patience [Numeric] seconds for the thread, which may have jobs on their way to their queue
      # @return [Array] units of work that are still to return to their queue, which is the caller's task now
      def take_homeless(patience)
        @lock.synchronize { @thread }&.join(patience)
        units = [@returning, *@homeless, *@kept, *@starting.map(&:first), *@withheld].compact
        [@homeless, @kept, @starting, @withheld].each(&:clear)
        units
      end

      # Called by a processor at the end of its task. Starts no other job here, since it would inherit the Fiber storage
      # of the one that has ended.
      #
      # @param fetching [Boolean] whether it was still fetching
      # @return [void]
      def ended(processor, fetching)
        @busy.delete(processor)
        @fetching -= 1 if fetching
        wake if !@killed && (@fetching < @fetchers || @kept.any?)
      end

      # Called when the thread is killed, from within a task.
      #
      # @return [void]
      def killed
        @killed = true
      end

      # @return [Boolean] whether the thread is killed: its tasks are cancelled, and their jobs return to their queue
      def killed? = @killed

      # Called by a task that was cancelled: with all others, or alone by its job?
      #
      # @return [Boolean] whether all are cancelled; the dispatcher's own may have its turn after the caller's
      def all_cancelled?
        Heddle.shield(GRACE) { @serving&.wait(TURN) } unless @killed
        @killed
      end

      # @return [Array<FiberProcessor>] those that run a job
      def busy = @busy.keys.select(&:job)

      # Interrupts a job, or a task of a job, that computes, so that it has not seen its interruption, and keeps the
      # others from seeing theirs. Called again and again, by another thread: a task computes if it has run since the
      # call before.
      #
      # @return [void]
      def interrupt_computing
        task = computing
        seen = [task, *@scheduler&.statistics&.values_at(*Jobs::StallWatch::SIGNS_OF_LIFE)]
        if task && seen == @seen
          processor = processor_of(task)
          processor ? processor.raise_interruption(@thread) : SubTasks.interrupt(task, @thread)
        end
        @seen = seen
      end

      # @return [FiberProcessor, nil] the one whose job, or whose job's task, the thread runs now
      def running
        task = computing or return
        processor_of(task) || task.heddle_job&.processor
      end

      private

      # A job's own task comes first, since a run in the job has another one.
      #
      # @return [Task, nil] whose code the thread runs now
      def computing
        tasks = @scheduler&.tasks || []
        tasks.select { |task| Jobs::StallWatch.computing?(task) }.min_by { |task| processor_of(task) ? 0 : 1 }
      end

      def processor_of(task) = @busy.keys.find { |processor| processor.task.equal?(task) }

      # Jobs keep their errors to themselves: an error that ends the run is a fault of the machine's, or of ours.
      def run
        Thread.current.thread_variable_set(:heddle_capsule, capsule)
        until ended?
          begin
            Heddle.run(grace: GRACE) { serve }
          rescue => error
            handle_exception(error, {context: "The fibers of the #{capsule.name} capsule have ended"})
            nothing_runs
          rescue ::Sidekiq::Shutdown # meant for a job that computed, which has ended meanwhile
            nothing_runs
          rescue SystemExit # of a task that a job left behind; it ends the process, as that of a thread does
            @stopped = true
            give_back_kept
            return_homeless
            raise
          end
        end
      ensure
        start_anew
      end

      def nothing_runs
        @fetching = @reserved = 0
        @killed = false
      end

      # Another thread follows one that was killed.
      def start_anew
        @lock.synchronize do
          next if @thread != Thread.current || @stopped

          give_back_kept
          nothing_runs
          @busy.clear
          @thread = safe_thread("#{capsule.name}/fibers") { run }
        end
      rescue ThreadError
        nil # the process ends, and no thread starts any more
      end

      def ended?
        @lock.synchronize do
          next false unless over?

          @thread = nil # a processor that starts from now on starts another one
          true
        end
      end

      def over? = @stopped || @members.zero?

      def serve
        @serving = Task.current
        @scheduler = Fiber.scheduler
        watch = watch_stalls
        until over?
          seen = @changed.count
          retire if @leaving
          hand_out if @kept.any?
          start_fetching
          return_homeless
          @changed.wait(seen, RETRY)
        end
        give_back_kept # a fetch got them as the last processors ended
        return_homeless
        done = true
      ensure
        @killed = true unless done
        watch&.stop
      end

      # Starts the jobs that were fetched for idle processors. Before them, another processor starts to fetch: its
      # request is under way while they run.
      #
      # A job runs at once, until its first wait. Other tasks may have their turn then, or the job kills the thread: the
      # jobs that have not started are not this method's alone.
      def hand_out
        units, @kept = @kept, []
        @starting.concat(units.zip(@idle.pop(units.size)))
        start_fetching
        while (unit, processor = @starting.shift)
          processor ? start_task(processor, unit) : give_back(unit) # the process stops
        end
        done = true
      ensure
        give_back_starting unless done
      end

      # Leaves the processors for which jobs are on their way.
      #
      # @return [void]
      def start_fetching
        while @fetching < @fetchers && @idle.size > @reserved && (processor = @idle.pop)
          break unless start_task(processor)
        end
      end

      # @param unit [Object, nil] of work; nil to fetch one. It returns to its queue if it cannot start
      # @return [Boolean] whether it has started
      def start_task(processor, unit = nil)
        started = false
        @fetching += 1 unless unit
        @busy[processor] = true
        Heddle.spawn do
          started = true
          processor.work(unit)
        end
        true
      rescue LimitReached => error
        handle_exception(error, {context: "No room for another job: #{@busy.size - 1} run"})
        false
      ensure
        not_started(processor, unit) unless started
      end

      def not_started(processor, unit)
        @busy.delete(processor)
        @fetching -= 1 unless unit
        @idle << processor
        give_back(unit) if unit
      end

      def give_back_kept
        give_back(@kept.shift) until @kept.empty?
      end

      def give_back_starting
        while (unit, processor = @starting.shift)
          @idle << processor if processor
          give_back(unit)
        end
      end

      def return_homeless
        while (@returning = @homeless.shift)
          @returning.requeue
          @returning = nil
        end
      rescue ::RedisClient::Error, ::ConnectionPool::TimeoutError
        nil # not yet
      rescue => error # of a gem's own unit of work: the jobs that run must not end by it
        handle_exception(error, {context: "A job could not return to its queue"})
      ensure
        unit, @returning = @returning, nil
        @homeless.unshift(unit) if unit
      end

      # Sidekiq's manager waits for those that are to end.
      def retire
        @leaving = false
        leaving, @idle = @idle.partition(&:stopping?)
        leaving.each(&:retire)
      end

      def watch_stalls
        return unless capsule.heddle_stall

        Jobs::StallWatch.new(Fiber.scheduler, Thread.current, capsule.heddle_stall) do |seconds, backtrace|
          report_stall(running, seconds, backtrace)
        end
      end

      # An error of the program's own cleaner or logger must not end the watch.
      def report_stall(processor, seconds, backtrace)
        lines = config[:backtrace_cleaner].call(backtrace)
        place = lines.empty? ? "" : ", at\n    #{lines.join("\n    ")}"
        who = processor&.description || "The thread of the #{capsule.name} capsule"
        logger.warn("#{who} has kept the other jobs of its thread waiting for #{seconds.round(1)} s#{place}")
      rescue => error
        handle_exception(error, {context: "A stall of the #{capsule.name} capsule could not be reported"})
      end
    end
  end
end
