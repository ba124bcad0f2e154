# frozen_string_literal: true

module Heddle
  module RubyFixes
    # The hook fiber_interrupt of Ruby 4.1 is called with a proxy in place of the fiber: it has +alive?+ and +raise+,
    # which reach the fiber only while its IO operation lasts (https://bugs.ruby-lang.org/issues/21918). The proxy does
    # not say which fiber it stands for, so that the loop has to call it: on the loop's own thread, by a fiber that is
    # ready to run again, since +raise+ switches to the other one. (Ruby >= 4.1.)
    module InterruptProxy
      def fiber_interrupt(target, exception)
        return super if target.is_a?(Fiber)
        return interrupt_through(target, exception) if Fiber.scheduler.equal?(self)

        # IO#close has woken the fiber already, see IOClose. When this hook returns, Ruby raises the error of the closed
        # IO.
        Task.prepare(self, "IO#close", nil, true) { interrupt_through(target, exception) }.start
        true
      rescue SchedulerClosed
        false
      end

      def installed
        super { accept_posts && yield }
      end

      private

      def interrupt_through(proxy, exception)
        step_aside { proxy.raise(exception) if proxy.alive? }
        true
      end

      Scheduler.prepend(self)
    end
  end
end
