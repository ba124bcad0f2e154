# frozen_string_literal: true

module Heddle
  module RubyFixes
    # Under a scheduler, Mutex#sleep (and ConditionVariable#wait, which calls it) does not reacquire the Mutex when an
    # exception ends the wait. The surrounding `synchronize` then raises ThreadError in place of that exception
    # (https://github.com/ruby/ruby/pull/12158, in 3.4, in 3.3.8 at the latest, and in later patch levels of 3.2).
    module MutexSleep
      def sleep(timeout = nil)
        return super unless Fiber.current_scheduler.is_a?(Loop)

        begin
          super
        ensure
          lock unless owned?
        end
      end

      Thread::Mutex.prepend(self)
    end
  end
end
