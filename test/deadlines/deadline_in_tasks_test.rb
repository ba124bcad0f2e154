# frozen_string_literal: true

require "test_helper"
require "shared/deadlines"

class DeadlineInTasksTest < Minitest::Test
  include Shared::Deadlines

  mode :fiber

  # The timers of the loop are the deadlines': none may be left.
  def inside
    Heddle.run do
      yield
    ensure
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end
end
