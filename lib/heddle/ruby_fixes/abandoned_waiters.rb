# frozen_string_literal: true

require_relative "../core/after_fork"

module Heddle
  module RubyFixes
    # At the end of a process Ruby unlocks every Mutex of its main thread. If a fiber of that thread still waits for
    # such a Mutex, Ruby crashes with "[BUG] unexpected THREAD_KILLED": the thread is already marked as dead, and has no
    # scheduler any more. A child that was forked in a loop has such fibers if one of its parent's tasks held a Mutex
    # and another waited for it. So such a child, as its last step, sets a scheduler that ignores wake-ups.
    module AbandonedWaiters
      # The methods that Fiber.set_scheduler requires. Ruby only calls +unblock+.
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
        # at_exit handlers run in reverse order: this one, registered before the program's own, runs after them.
        def install
          at_exit { Fiber.set_scheduler(Sink.new) if @abandoned && Fiber.scheduler.nil? }
          AfterFork.register(-> { Fiber.scheduler.is_a?(Loop) }) { |in_loop| @abandoned ||= in_loop }
        end
      end

      install
    end
  end
end
