# frozen_string_literal: true

module Heddle
  module Compat
    # A child of fork keeps the thread's scheduler until Ruby 4.0 (https://github.com/ruby/ruby/pull/15385), though the
    # fibers that it would run are the parent's. The code after fork, or in its block, goes on without a scheduler.
    module Fork
      def _fork
        pid = super
        Fiber.set_scheduler(nil) if pid.zero? && Fiber.scheduler.is_a?(Heddle::Scheduler)
        pid
      end

      # Does not go through _fork.
      def daemon(...)
        super.tap { Fiber.set_scheduler(nil) if Fiber.scheduler.is_a?(Heddle::Scheduler) }
      end

      Process.singleton_class.prepend(self)
    end
  end
end
