# frozen_string_literal: true

module Heddle
  module Compat
    # At the end of a process Ruby unlocks every Mutex of its main thread, and ends with "[BUG] unexpected
    # THREAD_KILLED" where a fiber of that thread still waits for one: the thread is marked as dead by then, and it
    # has no scheduler any more. A child that is forked in a loop has such fibers where one of its parent's tasks held
    # a Mutex and another waited for it. So the last thing that such a child does is to set a scheduler that takes the
    # wake-ups and does nothing.
    module AbandonedWaiters
      # What Fiber.set_scheduler asks for. Only +unblock+ is ever called.
      class Sink
        def block(_blocker, _timeout = nil) = false

        def unblock(_blocker, _fiber) = nil

        def kernel_sleep(_duration = nil) = nil

        def io_wait(_io, _events, _timeout = nil) = false

        def fiber_interrupt(_fiber, _exception) = nil

        def close = nil
      end
      private_constant :Sink

      class << self
        # Handlers run in reverse order: this one, which was there before the program's own, after them.
        def install
          at_exit { Fiber.set_scheduler(Sink.new) if @abandoned && Fiber.scheduler.nil? }
          Process.singleton_class.prepend(self)
        end

        def abandoned! = @abandoned = true
      end

      def _fork
        in_loop = Fiber.scheduler.is_a?(Heddle::Scheduler)
        pid = super
        AbandonedWaiters.abandoned! if in_loop && pid.zero?
        pid
      end

      # Does not go through _fork.
      def daemon(...)
        AbandonedWaiters.abandoned! if Fiber.scheduler.is_a?(Heddle::Scheduler)
        super
      end

      install
    end
  end
end
