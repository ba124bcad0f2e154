# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Fiber#kill (Ruby >= 3.3) of a fiber that waits in the loop transfers to that fiber, and the calling fiber would
    # never run again. A fiber that Ruby has marked as killed also dies again at each switch, so that its `ensure`
    # blocks cannot wait. So a task's fiber is not killed: the task is cancelled, and no `rescue` can stop that. Fibers
    # that a task has made and resumed are killed by Ruby, after their killer was made ready.
    module FiberKill
      def kill
        scheduler = Fiber.scheduler
        return super unless scheduler.is_a?(Loop)
        return self if scheduler.kill(self)
        return super if equal?(Fiber.current) || !scheduler.waits?(self)

        scheduler.step_aside { super() }
        self
      end

      Fiber.prepend(self)
    end
  end
end
