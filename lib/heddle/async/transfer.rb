# frozen_string_literal: true

module Heddle
  module AsyncLoop
    # Fiber#transfer to a fiber that waits in the loop resumes it, as in Async's own loop: Async 2.23 wakes the waiters
    # of a condition so. A loop of {Heddle.run} alone refuses it.
    module Transfer
      def transfer(...)
        scheduler = Fiber.scheduler
        return super unless scheduler.is_a?(AsyncLoop) && scheduler.waits?(self)

        scheduler.resume(self, ...)
      end

      Fiber.prepend(self)
    end
    private_constant :Transfer
  end
end
