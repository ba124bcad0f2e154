# frozen_string_literal: true

require "active_support/dependencies"

module Heddle
  module ActiveRecordSupport
    # Has a reload of classes, as in development, wait for the jobs and requests that run as tasks. Rails' lock for that
    # knows its holders by their thread, which all of these share.
    #
    # With the isolation level :fiber a holder is a task, or a thread outside of any task. What a holder starts (runs,
    # tasks) counts as the holder itself: it would otherwise wait for a reload that waits for the holder.
    #
    # @api private
    module Interlock
      # The task or thread that held the lock when it started this task.
      Task.attr_accessor :heddle_holder

      # What ShareLock finds under the name Thread.
      module Holder
        def self.current
          return ::Thread.current unless ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

          task = Task.current
          task&.heddle_holder || task || ::Thread.current
        end
      end
      private_constant :Holder

      class << self
        # From now on. Called once.
        def install
          ActiveSupport::Concurrency::ShareLock.const_set(:Thread, Holder)
          ActiveSupport::Concurrency::ShareLock.private_constant(:Thread)
        end

        # @return [Task, Thread, nil] the running code, if it holds the lock
        def holder
          lock = ActiveSupport::Dependencies.interlock.instance_variable_get(:@lock)
          holder = Holder.current
          shares = lock.instance_variable_get(:@sharing).key?(holder)
          holder if shares || holder.equal?(lock.instance_variable_get(:@exclusive_thread))
        end

        # Has the running task count as the holder from now on.
        #
        # @param holder [Task, Thread, nil]
        # @return [void]
        def hand(holder)
          task = Task.current if holder
          task.heddle_holder = holder if task
        end
      end
    end
  end
end
