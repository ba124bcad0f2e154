# frozen_string_literal: true

module Heddle
  module Compat
    # Fiber#kill (Ruby >= 3.3) of a fiber that waits in the loop transfers to it, and whoever called it would never
    # run again. A fiber that Ruby has marked as killed also dies again at each switch, so that its `ensure` blocks
    # cannot wait. The task of such a fiber is cancelled instead, where no `rescue` can stop it. Other fibers, which a
    # task has made and resumed, are killed by Ruby, and their killer becomes ready first.
    module FiberKill
      def kill
        scheduler = Fiber.scheduler
        return super unless scheduler.is_a?(Heddle::Scheduler)
        return self if scheduler.kill(self)
        return super if equal?(Fiber.current) || !scheduler.waits?(self)

        scheduler.step_aside { super() }
        self
      end

      Fiber.prepend(self)
    end
  end
end
