# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Fiber#transfer to a fiber that waits in the loop does not end its wait, and the calling fiber would never run
    # again, since the loop does not know that it is ready. Raises FiberError, as Fiber#resume of such a fiber does.
    # (All Rubies.)
    module FiberTransfer
      def transfer(*, **)
        scheduler = Fiber.scheduler
        if scheduler.is_a?(Loop) && scheduler.waits?(self)
          ::Kernel.raise FiberError, "attempt to transfer to #{inspect}, which waits in Heddle's loop: end its wait " \
            "through a Thread::Queue, Fiber#raise or Heddle::Task#cancel"
        end
        super
      end

      Fiber.prepend(self)
    end
  end
end
