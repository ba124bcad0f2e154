# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Thread.pass and Thread.stop know only threads: Thread.pass skips the thread's other tasks, and Thread.stop stops
    # all tasks of the thread.
    module ThreadPass
      def pass
        scheduler = Fiber.current_scheduler
        scheduler.yield if scheduler.is_a?(Loop)
        super
      end

      def stop
        return super unless Fiber.current_scheduler.is_a?(Loop)

        raise ThreadError,
          "Thread.stop in a task would stop every task of its thread: wait for a Thread::Queue, or sleep"
      end

      Thread.singleton_class.prepend(self)
    end
  end
end
