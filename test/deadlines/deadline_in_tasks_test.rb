# frozen_string_literal: true

require "test_helper"
require "shared/deadlines"

runs_on also: %i[yjit]

class DeadlineInTasksTest < Minitest::Test
  include Shared::Deadlines

  mode :fiber

  # The loop's timers are those of the deadlines: none may be left once the tasks have ended.
  def inside
    Heddle.run do
      yield
    ensure
      wait_until(what: "the end of all timers") { Fiber.scheduler.statistics[:timers].zero? }
    end
  end

  # Of several deadlines around it a task gets the one that ends first; a Timeout.timeout applies to its caller alone.
  def test_a_task_inherits_the_earliest_of_several_deadlines
    inside do
      error = nil
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.02) do
          Heddle.deadline(60) { Timeout.timeout(60) { Heddle.spawn { sleep(30) }.wait } }.value
        rescue Heddle::DeadlineExceeded => error
          nil
        end
      end
      assert_includes error.message, "0.02"
    end
  end
end
