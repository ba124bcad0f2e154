# frozen_string_literal: true

require "sidekiq/manager"

module Heddle
  module SidekiqSupport
    # A manager of Sidekiq's whose processors are tasks of one thread.
    #
    # @api private
    class FiberManager < ::Sidekiq::Manager
      # Seconds between two looks at whether the last job has ended.
      INTERVAL = 0.05
      # Seconds until jobs that do not end return to their queue all the same, and in all until the process exits:
      # Sidekiq's own pause for `ensure` blocks. Jobs that end when they are interrupted are not started again elsewhere
      # while their `ensure` blocks run.
      REQUEUE = 1
      CLEAN_UP = 3
      private_constant :INTERVAL, :REQUEUE, :CLEAN_UP

      def initialize(capsule)
        check_isolation
        @dispatcher = capsule.heddle_dispatcher = Dispatcher.new(capsule)
        super
      end

      # Under the lock, because tasks that fail add processors meanwhile.
      def start
        @plock.synchronize { super }
        Signals.describe(@dispatcher)
      end

      # Under the lock, too.
      def quiet
        @plock.synchronize { super }
      end

      def stop(deadline)
        Signals.hurry
        super
      ensure
        @dispatcher.stop
        homeless = @dispatcher.take_homeless(@abandoned ? INTERVAL : CLEAN_UP)
        capsule.fetcher.bulk_requeue(homeless) if homeless.any?
        Signals.unregister(@dispatcher)
      end

      private

      # ActiveSupport keeps attributes of the current job by thread, unless it is told to keep them by fiber.
      def check_isolation
        return unless Object.const_defined?("ActiveSupport::IsolatedExecutionState")
        return if ::ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

        raise ArgumentError, "heddle: jobs on fibers would share ActiveSupport's current attributes and " \
          "ActiveRecord's connections. Write config.active_support.isolation_level = :fiber in config/application.rb " \
          "(without Rails: ActiveSupport::IsolatedExecutionState.isolation_level = :fiber)"
      end

      # Interrupts the jobs in the order in which they began.
      def hard_shutdown
        now = Clock.now
        left = @plock.synchronize { @workers.to_a }
        busy = @dispatcher.busy
        logger.warn { "Terminating #{busy.size} busy fibers" }
        logger.debug { "Jobs still in progress #{busy.filter_map(&:job).inspect}" }
        (busy | left).each(&:kill)
        ended = lambda do
          @dispatcher.interrupt_computing
          left.none?(&:task)
        end
        wait_until(now + REQUEUE, &ended)
        capsule.fetcher.bulk_requeue(left.filter_map(&:decide))
        wait_until(now + CLEAN_UP, &ended)
        abandon(left.select(&:task)) unless ended.call
      end

      def abandon(processors)
        @abandoned = true
        logger.warn { "Jobs do not end: #{processors.map(&:description).join(", ")}" }
        Signals.abandon_jobs
      end

      def wait_for(deadline, &condition)
        wait_until(deadline) { Signals.hurried? || condition.call }
      end

      def wait_until(deadline)
        sleep INTERVAL until yield || Clock.now >= deadline
      end
    end
  end
end
