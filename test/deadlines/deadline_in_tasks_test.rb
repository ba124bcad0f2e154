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

  # Of several around it a task gets the one that ends first; a Timeout.timeout is its caller's alone.
  def test_what_a_task_inherits_of_several
    inside do
      error = Heddle.deadline(0.02) do
        Heddle.deadline(60) { Timeout.timeout(60) { Heddle.spawn { assert_raises(Heddle::DeadlineExceeded) { sleep(30) } }.wait } }.value
      rescue Heddle::DeadlineExceeded => error
        error
      end
      assert_includes error.message, "0.02"
    end
  end
end
