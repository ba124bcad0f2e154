# frozen_string_literal: true

require "delegate"
require "sidekiq/processor"

module Heddle
  module SidekiqSupport
    # A processor of Sidekiq's that has a task where Sidekiq's has a thread, and only while it fetches or runs a job.
    #
    # @api private
    class FiberProcessor < ::Sidekiq::Processor
      # Seconds for the acknowledgement of a job, and for storing its retry. The end of the process interrupts neither.
      ACKNOWLEDGE = 10
      STORE = 10
      # What a Redis says that will take commands again.
      AWAY = /\A(?:LOADING|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|OOM|UNBLOCKED)\b/
      private_constant :ACKNOWLEDGE, :STORE, :AWAY

      # @return [Task, nil]
      attr_reader :task

      def initialize(capsule, &block)
        super
        @dispatcher = capsule.heddle_dispatcher ||= Dispatcher.new(capsule)
        @retrier = Retrier.new(capsule, self, @dispatcher)
        @tid = (object_id ^ ::Process.pid).to_s(36)
        @ended = EventCount.new
        @masking = Thread::Mutex.new
        @masked = true # but while Sidekiq runs a job
        @undecided = [] # the unit of work whose fate is open
      end

      # @return [void]
      def start
        return if @thread

        @thread = @dispatcher.join
        @dispatcher.add(self)
      end

      # @param wait [Boolean] for the end of the job, and of the thread if no other processor needs it
      # @return [void]
      def terminate(wait = false)
        @done = true
        @dispatcher.retire_idle
        await_end if wait
      end

      # Interrupts the job. A processor that fetches is left alone, since Redis may have handed it a job: it returns the
      # job to its queue.
      #
      # @param wait [Boolean] as for {#terminate}
      # @return [void]
      def kill(wait = false)
        @done = @killed = true # first: a job that is about to begin looks at it
        interrupt
        @dispatcher.retire_idle
        await_end if wait
      end

      # Raises the interruption now, in the code that the thread runs: that of the job, which computes.
      #
      # @param thread [Thread]
      # @return [void]
      def raise_interruption(thread)
        return if @interruption.nil? || interrupted? || @masked

        @task&.withdraw(@interruption) # the first wait of the job's clean-up would raise it again
        thread.raise(@interruption)
      end

      # Calls the block, which interrupts a task that a job has started, unless the job masks its interruption.
      #
      # @param fate [Array] of the job; this processor may run another one meanwhile
      # @return [void]
      def interrupt_sub_task(fate)
        yield if @killed && !(@masked && fate.equal?(@undecided))
      end

      # @param fate [Array] of a job
      # @return [Boolean] whether the job is about to be interrupted
      def interruption_on_its_way?(fate) = fate.equal?(@undecided) && @killed && !@masked && !interrupted?

      # Called when a job, or a task that it has started, kills the thread. Such a job must not do so for ever: as with
      # a thread of Sidekiq's, it returns to its queue when the process stops.
      #
      # @param fate [Array] of the job; this processor may run another one meanwhile
      # @return [void]
      def thread_killed(fate)
        @dispatcher.killed
        unit = fate.shift
        @dispatcher.withhold(unit) if unit
      end

      # Calls the block. Sidekiq calls it around a job, and the job around what must not be interrupted.
      #
      # @param never [Boolean] whether the interruption waits for the end of the block
      # @return [Object] the block's value
      def mask(never)
        outer = @masked
        begin
          change_mask(never)
          yield
        ensure
          change_mask(outer)
        end
      end

      # Decides the fate of the job: its end, or its return to the queue. The manager's thread may ask, too.
      #
      # @return [Object, nil] the unit of work; nil if its fate has been decided, or there is none
      def decide = @undecided.shift # one call in C: no other thread can have its turn in between

      # Runs one job. Called in a task of its own.
      #
      # @param unit [Object, nil] of work; nil to fetch one
      # @return [void]
      def work(unit)
        @task = Task.current
        @fetched = unit
        @fetching = !unit
        run
        ended = true
      rescue Exception # rubocop:disable Lint/RescueException -- of the manager's, and no kill
        ended = true
        raise
      ensure
        @task = nil
        fetching, @fetching = @fetching, false
        ended || killed
        @dispatcher.ended(self, fetching)
      end

      # @return [Boolean] whether the interruption of {#kill} has been raised in the job
      def interrupted? = !@interruption&.backtrace.nil?

      # Called when the job failed, and Sidekiq has stored its retry or its death: the job does not return to its queue,
      # whatever interrupts it from now on.
      #
      # @return [void]
      def failure_stored
        @failure_stored = true
      end

      # Ends a processor.
      #
      # @api private
      # @param error [Array<Exception>] why, unless it was told to
      # @return [void]
      def retire(*error)
        @callback.call(self, *error)
      ensure
        @dispatcher.unregister unless @left
        @left = true
        @ended.advance
      end

      # @return [String] the job, for a log
      def description
        job = ::Sidekiq.load_json(@job.job)
        "Job #{job["wrapped"] || job["class"]} (jid #{job["jid"]}, tid #{@tid})"
      rescue # it has ended, or is malformed
        "A job (tid #{@tid})"
      end

      private

      # Under the lock, so that no interruption is on its way when the job masks it.
      def interrupt
        @masking.synchronize do
          next if @masked || interrupted?

          @task&.interrupt(@interruption ||= ::Sidekiq::Shutdown.new("the process is shutting down"))
        end
      end

      def change_mask(never)
        @masking.synchronize do
          @masked = never
          @task&.withdraw(@interruption) if never && @interruption
        end
        interrupt if @killed && !never
      end

      def run
        Thread.current[:heddle_processor] = self
        Thread.current[:sidekiq_capsule] = @capsule
        Thread.current["sidekiq_tid"] = @tid
        process_one
        process_one while @fetching && !@done && !@dispatcher.killed?
        @done ? retire : @dispatcher.add(self)
      rescue ::Sidekiq::Shutdown
        retire
      rescue Exception => error # rubocop:disable Lint/RescueException -- as Sidekiq does
        retire(error)
      end

      # The thread is killed, and this task was its running one.
      def killed
        thread_killed(@undecided)
        @dispatcher.add(self)
      end

      def await_end
        return unless @thread

        @ended.wait(0)
        @dispatcher.await_end(@thread)
      end

      def fetch
        return take_fetched if @fetched

        job = super
        @got = nil
        return job unless job
        return return_at_once(job) if @dispatcher.killed?

        start_others(job)
        job
      rescue ::RedisClient::Error, ::ConnectionPool::TimeoutError
        raise unless @got.instance_of?(::Sidekiq::BasicFetch::UnitOfWork)

        @dispatcher.give_back(@got) # it has to return to its queue, and could not
        nil
      end

      # One of the other jobs may kill the thread before this one has begun.
      def start_others(job)
        @fetching = false
        @dispatcher.fetched
        started = true
      ensure
        @dispatcher.give_back(job) unless started
      end

      def return_at_once(job)
        @dispatcher.give_back(job)
        nil
      end

      def get_one
        @got = nil
        @got = super
      end

      def take_fetched
        unit, @fetched = @fetched, nil
        @done ? return_at_once(unit) : unit
      end

      # A return without an acknowledgement is due to an interruption; any other fault raises.
      def process(unit)
        SubTasks.begin(self, @undecided = [unit])
        @failure_stored = false
        work = Work.new(unit, self)
        super(work)
        @failure_stored ? work.acknowledge : give_back
      rescue ::RedisClient::Error, ::ConnectionPool::TimeoutError => error
        give_back if homeless?(unit, error)
        raise
      rescue ::Sidekiq::Shutdown # as an error of Sidekiq's own was reported
        give_back
        raise
      end

      def give_back
        unit = decide
        @dispatcher.give_back(unit) if unit
      end

      # Sidekiq cannot have a job retried while Redis is away, and its own fetch would not find the job again.
      def homeless?(unit, error)
        return false if @failure_stored || !unit.instance_of?(::Sidekiq::BasicFetch::UnitOfWork)

        !error.is_a?(::RedisClient::CommandError) || AWAY.match?(error.message)
      end

      # A job may rescue its interruption, as code does that rescues Exception, and return: it has not done its work.
      def dispatch(...)
        raise ::Sidekiq::Shutdown if @killed

        super
        raise ::Sidekiq::Shutdown, "the job went on when it was interrupted" if interrupted? || @dispatcher.killed?
      end

      # Sidekiq's own tests may call them.
      public(*(private_instance_methods(false) & superclass.public_instance_methods))

      # A unit of work that is acknowledged only if it has not returned to its queue.
      class Work < SimpleDelegator
        def initialize(unit, processor)
          super(unit)
          @processor = processor
        end

        def job = __getobj__.job

        def queue_name = __getobj__.queue_name

        def acknowledge
          Heddle.shield(ACKNOWLEDGE) { __getobj__.acknowledge } if @processor.decide
        end
      end

      # Treats a job that is cancelled at the end of the process or of its thread as one that Sidekiq interrupts: it is
      # not retried, since it returns to its queue. One that has failed is retried, and does not return. A job may also
      # fail by a cancellation of its own, as of a task that it started.
      class Retrier < ::Sidekiq::JobRetry
        def initialize(capsule, processor, dispatcher)
          super(capsule)
          @processor = processor
          @dispatcher = dispatcher
        end

        private

        # Not interrupted in between: the job would run again twice, from its queue and as a retry.
        def process_retry(*)
          Heddle.shield(STORE) do
            super
            @processor.failure_stored
          end
        end

        def exception_caused_by_shutdown?(error, *)
          (cancelled?(error) && (@processor.interrupted? || @dispatcher.all_cancelled?)) || super
        end

        # Also one that failed as it cleaned up.
        def cancelled?(error) = !error.nil? && (error.is_a?(Cancellation) || cancelled?(error.cause))
      end
      private_constant :Work, :Retrier
    end
  end
end
