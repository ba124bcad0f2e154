# frozen_string_literal: true

module Heddle
  module Compat
    # A child of fork keeps the thread's scheduler until Ruby 4.0 (https://github.com/ruby/ruby/pull/15385), though the
    # fibers that it would run are the parent's. This patch removes the scheduler from the child.
    module Fork
      def _fork
        pid = super
        Fiber.set_scheduler(nil) if pid.zero? && Fiber.scheduler.is_a?(Loop)
        pid
      end

      # Process.daemon does not call _fork.
      def daemon(...)
        super.tap { Fiber.set_scheduler(nil) if Fiber.scheduler.is_a?(Loop) }
      end

      Process.singleton_class.prepend(self)
    end
  end
end
