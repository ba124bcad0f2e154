# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one

# A library that starts one fiber for all of its callers, in whichever asks first, like clients with a driver or a
# shared connection: the deadline of that caller must not bound the work of the others.
class DriverFibersTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  EXCEEDED = Heddle::DeadlineExceeded

  # Does one request after another. Its fiber ends when nothing is left to do, and the next request starts it again.
  class Driver
    def initialize
      @requests = Thread::Queue.new
    end

    def request(seconds)
      answer = Thread::Queue.new
      @requests << [seconds, answer]
      Fiber.schedule { drive } unless @fiber&.alive? # sets @fiber before others have their turn
      answer.pop
    end

    private

    def drive
      @fiber = Fiber.current
      until @requests.empty?
        seconds, answer = @requests.pop
        sleep(seconds)
        answer << :answered
      end
    end
  end

  def test_the_first_callers_deadline_ends_its_own_wait_only
    values = Heddle.run do
      driver = Driver.new
      first = Heddle.spawn do
        Heddle.deadline(0.02) { driver.request(0.1) }
      rescue EXCEEDED
        :rescued
      end
      second = Heddle.spawn { driver.request(0.01) }
      [first.value, second.value]
    end
    assert_equal %i[rescued answered], values
  end

  def test_under_a_plain_scheduler
    answers = in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      driver, answers = Driver.new, []
      Fiber.schedule do
        Heddle.deadline(0.02) { driver.request(0.05) }
      rescue EXCEEDED
        answers << :rescued
      end
      Fiber.schedule { answers << driver.request(0.01) }
      Fiber.set_scheduler(nil)
      answers
    end
    assert_equal %i[rescued answered], answers
  end

  def test_remaining_is_that_of_the_caller
    Heddle.run do
      seen = []
      Heddle.deadline(30) do
        Fiber.schedule { seen << Heddle.remaining }
        Heddle.spawn { seen << Heddle.remaining.ceil }.wait
        Heddle::FiberPool.new(1).map([1]) { seen << Heddle.remaining.ceil }
      end
      assert_equal [nil, 30, 30], seen
    end
  end

  # Neither a wait, nor a caller's clean-up: starting the fiber must not fail.
  def test_a_driver_can_be_started_after_the_deadline
    Heddle.run do
      driver, ran = nil, []
      assert_raises(EXCEEDED) do
        Heddle.deadline(0) do
          driver = Fiber.schedule { sleep(0.001) && ran << 1 }
          sleep
        end
      end
      wait_until { ran.any? }
      refute_predicate driver, :alive?
    end
  end

  # An inner run ends with its own tasks; the driver works for tasks outside, too.
  def test_an_inner_run_neither_waits_for_the_driver_nor_ends_it
    Heddle.run do
      goes_on, ended = Thread::Queue.new, []
      assert_within(2, remeasure: 0) { Heddle.run { Fiber.schedule { goes_on.pop && ended << 1 } } }
      assert_raises(IOError) { Heddle.run { Fiber.schedule { goes_on.pop && ended << 2 } && raise(IOError) } }
      assert_empty ended
      3.times { goes_on << true }
      wait_until { ended.size >= 2 }
    end
  end

  def test_the_outermost_run_waits_for_the_driver
    ended = []
    Heddle.run { Heddle.run { Fiber.schedule { sleep(0.02) && ended << 1 } } }
    assert_equal [1], ended
  end

  def test_the_drivers_error_is_raised_from_the_outermost_run
    inside = nil
    error = stderr_of do
      assert_raises(IOError) do
        Heddle.run do
          Heddle.run { Fiber.schedule { sleep(0.001) && raise(IOError, "the driver's") } }
          inside = :returned
        end
      end
    end
    assert_equal :returned, inside
    assert_includes error, "the driver's"
  end

  def test_a_run_under_a_plain_scheduler_leaves_the_driver_to_the_program
    order = in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      order = []
      Heddle.run { Fiber.schedule { sleep(0.02) && order << :fiber } }
      order << :run
      Fiber.set_scheduler(nil)
      order
    end
    assert_equal %i[run fiber], order
  end
end
