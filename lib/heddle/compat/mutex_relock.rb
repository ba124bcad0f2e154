# frozen_string_literal: true

module Heddle
  module Compat
    # Mutex#sleep and ConditionVariable#wait take the Mutex again without being interrupted. What is raised in a thread
    # meanwhile Ruby raises once that is done, but it asks no scheduler: a deadline or a cancel would come at the next
    # wait only.
    module MutexRelock
      def sleep(timeout = nil)
        scheduler = Fiber.current_scheduler
        slept = super
        scheduler.raise_deferred if scheduler.is_a?(Heddle::Scheduler)
        slept
      end

      Thread::Mutex.prepend(self)

      # Calls Mutex#sleep, unless Ruby itself takes a shorter way (4.0 and later).
      module Condition
        def wait(mutex, timeout = nil)
          scheduler = Fiber.current_scheduler
          woken = super
          scheduler.raise_deferred if scheduler.is_a?(Heddle::Scheduler)
          woken
        end

        Thread::ConditionVariable.prepend(self) if RUBY_VERSION >= "4.0"
      end
    end
  end
end
