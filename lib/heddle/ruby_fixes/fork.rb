# frozen_string_literal: true

require_relative "../core/after_fork"

module Heddle
  module RubyFixes
    # A child of fork keeps the thread's scheduler until Ruby 4.0 (https://github.com/ruby/ruby/pull/15385), though the
    # fibers that it would run are the parent's. This removes the scheduler from the child.
    module Fork
      AfterFork.register { Fiber.set_scheduler(nil) if Fiber.scheduler.is_a?(Loop) }
    end
  end
end
