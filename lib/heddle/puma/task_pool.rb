# frozen_string_literal: true

require_relative "../core/full_message"
require_relative "../core/loop_thread"
require_relative "../jobs/stall_watch"
require_relative "stream"

module Heddle
  module PumaSupport
    # A pool of Puma's in which tasks stand for threads: what Puma counts, waits for and reports as its threads are the
    # requests that run. They run on a few threads with a loop each.
    #
    # A task exists while it serves. `@spawned` counts the tasks that run and those that are about to begin; the latter
    # are `@waiting`, of which each will take a request from `@todo`.
    #
    # @api private
    class TaskPool < ::Puma::ThreadPool
      # Seconds for tasks that are cancelled, of a request or left behind by one, before their thread is killed.
      GRACE = 1
      # Seconds for which a connection is left to other processes while no loop begins the one before. The thread that
      # accepts connections sees a stop only then.
      STUCK = 0.2
      # Seconds for which a loop may keep the GVL, give or take a request.
      SLICE = 0.005
      # Seconds between two looks at whether loops have fallen asleep.
      LOOK = 0.001
      # Seconds between two looks at whether a request computes.
      INTERVAL = 0.05

      # What Puma asks of a thread of its pool while that handles a request. Its extra threads for requests that wait
      # ("io threads") are for pools of few threads.
      class Processor
        def mark_as_io_thread! = nil

        def marked_as_io_thread? = false
      end
      PROCESSOR = Processor.new.freeze
      private_constant :GRACE, :STUCK, :SLICE, :LOOK, :INTERVAL, :Processor, :PROCESSOR

      # @return [String] of the tasks
      attr_reader :name

      def initialize(name, options = {}, **rest, &block)
        PumaSupport.check_isolation
        @loops = []
        @ends = 0 # of requests
        @passed = 0 # when a loop last gave the GVL away
        @seen = {}.compare_by_identity # by {#interrupt_computing}
        @clients = {}.compare_by_identity # by the task that serves them
        @forceable = {}.compare_by_identity # tasks in {#with_force_shutdown}, with the error that was raised in them
        super
        Compatibility.check_state(self)
        @passes_processor = block.arity == 2 # since Puma 8
        @delay = options[:wait_for_less_busy_worker] if (options[:workers] || 0) > 1
        @shutdown_debug = options[:shutdown_debug] # until Puma 7, its server alone has it
        @stall = options[:heddle_stall]
        @log = options[:log_writer]
        with_mutex { options[:heddle_threads].times { start_loop } }
      end

      # The next request of a connection is a task of its own, so that it begins behind those that are ready.
      def waiting = 0

      # A request that ends as the pool shuts down may have read the next one of its connection.
      def <<(client)
        super
      rescue RuntimeError
        raise unless @shutdown && Task.current

        with_mutex { @todo << client }
        self
      end

      # Called by the thread that accepts connections, while another process may be idle. As Puma 6 does, waits for the
      # end of a request if this process computes or has no room. Waits longer if no loop begins the request before.
      #
      # @param seconds [Numeric, nil] the most to wait in the former case
      def wait_for_less_busy_worker(seconds)
        return unless seconds && seconds > 0

        start = Clock.now
        with_mutex do
          ends = @ends
          while !@shutdown && (@waiting > 0 || (ends == @ends && busy?))
            left = start + ((@waiting > 0) ? [STUCK, seconds].max : seconds) - Clock.now
            break if left <= 0

            @not_full.wait(@mutex, [left, LOOK].min)
          end
        end
      end

      # Called by the thread that accepts connections; Puma 7.1 and later have no method for the wait above.
      def wait_while_out_of_band_running
        super
        wait_for_less_busy_worker(@delay)
      end

      # Puma's own marks the thread, which other requests share. The block calls the application, or reads a request.
      def with_force_shutdown
        task = Task.current
        @shutdown_mutex.synchronize do
          raise ForceShutdown if @force_shutdown

          @forceable[task] = nil
        end
        Stream.of(yield, @clients[task])
      ensure
        @shutdown_mutex.synchronize do
          error = @forceable.delete(task)
          task.withdraw(error) if error
        end
      end

      # @param timeout [Numeric] seconds until ForceShutdown is raised in requests; -1 for never
      def shutdown(timeout = -1)
        loops = with_mutex do
          @shutdown = true
          @not_full.broadcast
          [@auto_trim, @reaper].each { |automaton| automaton&.stop }
          @loops.each(&:wake).dup
        end
        shutdown_debug("Shutdown initiated") if @shutdown_debug == true
        return loops.each { |loop| loop.thread.join } if timeout == -1
        return if joined?(loops, timeout)

        shutdown_debug("Shutdown timeout exceeded") if @shutdown_debug == :on_force
        force_shutdown
        return if joined?(loops, @shutdown_grace_time) { interrupt_computing(loops) }

        shutdown_debug("Shutdown grace timeout exceeded") if @shutdown_debug == :on_force
        loops.each(&:kill)
        return if joined?(loops, GRACE)

        loops.each { |loop| loop.thread.kill }
        joined?(loops, GRACE)
      end

      # The methods that follow are those of the owner of a {LoopThread}.

      # @return [Numeric] seconds
      def grace = GRACE

      # @return [nil] a thread without a request stays
      def idletime = nil

      # @return [Puma::Client, nil] for {#perform}
      def take(thread)
        thread.scheduler.yield # tasks that are ready go on before another request begins
        with_mutex do
          next if @waiting.zero?

          @waiting -= 1
          client = thread.took(@todo.shift)
          @not_full.signal if @todo.empty?
          client
        end
      end

      def give_back(thread, client)
        with_mutex do
          thread.gave_back
          @waiting += 1
          later = Array.new(@todo.size) { @todo.shift } # an Array, or a Queue
          [client, *later].each { |each| @todo << each }
        end
      end

      # A request that may begin has woken the threads.
      def attend?(thread) = @waiting.positive? || (@shutdown && thread.idle?)

      # With its last request a thread ends, and cancels the tasks that requests have left behind.
      def dismiss?(thread, _idle)
        thread.kill if with_mutex { @shutdown && @todo.empty? }
        false
      end

      def perform(client)
        @clients[task = Task.current] = client
        served = @passes_processor ? @block.call(PROCESSOR, client) : @block.call(client)
      ensure
        @clients.delete(task)
        Heddle.unlimited_shield { ended(served) }
        pass_on_gvl
      end

      def failed(error)
        $stderr.write("Error reached top of thread-pool: #{error.message} (#{error.class})\n")
      end

      def short_of_fibers(error)
        $stderr.write("heddle: requests wait for the end of others: #{error.message}\n")
      end

      def thread_failed(error)
        $stderr.write("heddle: the requests of a thread were cancelled: #{FullMessage[error]}")
      end

      def thread_ended(thread)
        trigger_before_thread_exit_hooks
        with_mutex do
          @loops.delete(thread)
          start_loop unless @shutdown # it was killed
        end
      rescue ThreadError
        nil # the process ends, and no thread starts any more
      end

      private

      # Call this under the lock. Nothing in the mask waits.
      def start_loop
        trigger_before_thread_start_hooks
        name = format("puma %s tp %03i", @name, @loops.size + 1)
        Thread.handle_interrupt(Object => :never) do
          @loops << LoopThread.new(self, Float::INFINITY, name) { |thread| begin_loop(thread) }
        end
      end

      # Called in the thread.
      def begin_loop(thread)
        Thread.current.puma_server = @server if @server
        return unless @stall

        Jobs::StallWatch.new(thread.scheduler, Thread.current, @stall) do |seconds, backtrace|
          @log.log("! A request has kept the others of its thread waiting for #{seconds.round(1)} s, at\n    " \
            "#{backtrace.join("\n    ")}")
        end
      end

      # Called under the lock, for a request that may begin: in the loop that comes first.
      def spawn_thread
        @spawned += 1
        @waiting += 1
        @loops.each(&:wake)
      end

      # Called at the end of a task, whose place another request takes, in a task of its own.
      def ended(served)
        with_mutex do
          @ends += 1
          @out_of_band_pending = true if served
          if @todo.size > @waiting
            @waiting += 1
            @loops.each(&:wake)
          else
            @spawned -= 1
            @out_of_band_pending = false if @out_of_band_pending && @spawned.zero? && trigger_out_of_band_hook
          end
          @not_full.signal
        end
      end

      # A loop that has always something to do would keep the GVL from the threads that accept connections and read
      # requests, until Ruby takes it away: 100 ms for each step of theirs.
      def pass_on_gvl
        now = Clock.now
        return if now - @passed < SLICE

        @passed = now
        Thread.pass
      end

      # Call this under the lock.
      def busy? = !@todo.empty? || @loops.none? { |thread| thread.scheduler&.sleeps? }

      def joined?(loops, seconds)
        deadline = Clock.now + seconds
        threads = loops.map(&:thread)
        until threads.none?(&:alive?)
          left = deadline - Clock.now
          return false if left <= 0

          threads.find(&:alive?)&.join([left, INTERVAL].min)
          yield if block_given?
        end
        true
      end

      # Since Puma 8 its pool lists the threads.
      def shutdown_debug(message)
        super if defined?(super)
        $stdout.puts "#{Process.pid}: #{message}: the tasks"
        Heddle.dump($stdout)
      end

      def force_shutdown
        @shutdown_mutex.synchronize do
          @force_shutdown = true
          @forceable.each_key do |task|
            @forceable[task] = error = ForceShutdown.new
            task.interrupt(error)
          end
        end
      end

      # A request that computes does not see its interruption, and keeps others from seeing theirs. A task computes if
      # nothing else ran since the call before.
      def interrupt_computing(loops)
        loops.each do |loop|
          task = loop.scheduler&.tasks&.find { |candidate| Jobs::StallWatch.computing?(candidate) } or next
          now = [task, *loop.scheduler.statistics.values_at(*Jobs::StallWatch::SIGNS_OF_LIFE)]
          interrupt_now(loop.thread, task) if now == @seen[loop]
          @seen[loop] = now
        end
      end

      def interrupt_now(thread, task)
        @shutdown_mutex.synchronize do
          error = @forceable[task]
          next if error.nil? || error.backtrace

          task.withdraw(error)
          thread.raise(error)
        end
      end
    end
    private_constant :TaskPool
  end
end
