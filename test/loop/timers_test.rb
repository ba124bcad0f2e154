# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

class TimersTest < Minitest::Test
  include LoopHelpers

  def test_sleepers_wake_in_the_order_of_their_deadlines
    spans = Array.new(1000) { |index| 0.1 + index * 0.0002 }.shuffle(random: Random.new(2))
    began, woken = [], []
    Heddle.run do
      spans.each do |span|
        Heddle.spawn do
          number = began.size
          began << monotonic
          sleep(span)
          assert_operator monotonic, :>=, began[number] + span
          woken << [number, span]
        end
      end
    end
    assert_equal spans.size, woken.size
    assert_in_order(woken, began << monotonic)
  end

  # The clock is read once for all of them: their deadlines differ, and the test is of their order.
  def test_equal_deadlines_fire_in_the_order_of_their_creation
    woken = []
    Heddle.run do
      200.times { |index| Heddle.spawn { sleep(0.05) and woken << index } }
      busy_until = monotonic + 0.1
      nil while monotonic < busy_until # all of them are due at the next poll
    end
    assert_equal Array.new(200) { |index| index }, woken
  end

  def test_a_short_sleep_among_long_ones_ends_first
    Heddle.run do
      long = Array.new(500) { |index| Heddle.spawn { sleep(100 + index) } }
      assert_within(1, at_least: 0.01) { sleep(0.01) }
      long.each(&:cancel)
    end
  end

  def test_sleep_returns_the_seconds_as_ruby_does
    # Whole seconds by the wall clock: a short sleep may span two of them.
    whole = Heddle.run { [sleep(0), sleep(0.01), sleep(1)] }
    assert_includes [0, 1], whole[1]
    assert_includes [1, 2], whole[2]
  end

  def test_sleep_takes_every_kind_of_number
    assert_within(2, at_least: 0.02) do
      Heddle.run do
        sleep(0.01r)
        sleep(1/100r)
        sleep(0)
        sleep(0.0)
        sleep(0.000_000_001)
      end
    end
  end

  def test_sleep_without_end_is_ended_by_a_wake_up
    Heddle.run do
      fiber = nil
      sleeper = Heddle.spawn do
        fiber = Fiber.current
        sleep
        :woken
      end
      Fiber.scheduler.unblock(nil, fiber)
      assert_equal :woken, sleeper.value
    end
  end

  def test_cancelled_timers_leave_the_heap
    Heddle.run do
      tasks = Array.new(1000) { |index| Heddle.spawn { sleep(1000 + index % 7) } }
      assert_equal 1000, Fiber.scheduler.statistics[:timers]
      tasks.shuffle(random: Random.new(3)).each_slice(100) do |some|
        some.each(&:cancel)
        some.each(&:wait)
      end
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  # The heap against a plain sort, with removals from its middle.
  def test_the_heap_keeps_its_order_when_timers_are_taken_out_of_it
    random = Random.new(4)
    began, order, cancelled = [], [], 0
    Heddle.run do
      tasks = Array.new(600) do
        span = 0.3 + random.rand(200) * 0.001
        Heddle.spawn do
          number = began.size
          began << monotonic
          sleep(span)
          order << [number, span]
        end
      end
      # On a busy machine the first ones may have ended.
      chosen = tasks.select.with_index { |task, index| index % 3 == 1 && !task.ended? }
      chosen.each(&:cancel)
      cancelled = chosen.size
    end
    assert_operator cancelled, :>, 0
    assert_equal 600 - cancelled, order.size
    assert_in_order(order, began << monotonic)
  end

  private

  # Pairs of a sleeper's number and its span. The loop read its clock after that sleeper did, and before the next one
  # could: so nothing is assumed of the CPU's time between a task's reading and the loop's.
  def assert_in_order(woken, began)
    woken.each_cons(2) do |(earlier, short), (later, long)|
      assert_operator began[later + 1] + long, :>=, began[earlier] + short
    end
  end
end
