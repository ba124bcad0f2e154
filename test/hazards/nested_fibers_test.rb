# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit]

# Fibers that tasks make and resume themselves: they may wait, and what interrupts the task interrupts there.
class NestedFibersTest < Minitest::Test
  include LoopHelpers

  # Ruby 3.1 makes Enumerator's fibers blocking ones: no scheduler is asked there.
  BLOCKING_ENUMERATORS = RUBY_VERSION < "3.2"

  def test_io_in_a_fiber_of_the_tasks_own
    with_pair do |reader, writer|
      Heddle.run do
        task = Heddle.spawn do
          fiber = Fiber.new do
            line = reader.gets
            Fiber.yield(line)
            reader.gets
          end
          [fiber.resume, fiber.resume]
        end
        other = Heddle.spawn { sleep(0.001) && :ran }
        writer.puts("one")
        assert_equal :ran, other.value
        writer.puts("two")
        assert_equal ["one\n", "two\n"], task.value
      end
    end
  end

  def test_ten_levels_deep
    Heddle.run do
      nest =
        ->(level) { level.zero? ? (sleep(0.001) && :deep) : Fiber.new(blocking: false) { nest.call(level - 1) }.resume }
      assert_equal [:deep] * 20, Array.new(20) { Heddle.spawn { nest.call(10) } }.map(&:value)
    end
  end

  def test_io_in_enumerator_next
    skip "Ruby 3.1 blocks the thread there, see the next test" if BLOCKING_ENUMERATORS
    with_pair do |reader, writer|
      Heddle.run do
        lines = Enumerator.new { |yielder| loop { yielder << reader.gets } }
        task = Heddle.spawn { Array.new(3) { lines.next } }
        3.times { |index| writer.puts(index) && sleep(0.001) }
        assert_equal ["0\n", "1\n", "2\n"], task.value
      end
    end
  end

  # A limit: the thread stops while such an enumerator's body waits.
  def test_io_in_enumerator_next_blocks_the_thread_on_ruby_3_1
    skip "from Ruby 3.2 on it parks its fiber, see the test before" unless BLOCKING_ENUMERATORS
    with_pair do |reader, writer|
      Heddle.run do
        ticks = 0
        ticker = Heddle.spawn { loop { sleep(0.001) && ticks += 1 } }
        feeder = Thread.new { sleep(0.03) && writer.puts("late") }
        lines = Enumerator.new { |yielder| yielder << reader.gets }
        before = ticks
        assert_equal "late\n", lines.next
        assert_operator ticks - before, :<=, 1
        ticker.cancel
        feeder.join
      end
    end
  end

  # Enumeration by blocks, lazy or not, makes no fiber.
  def test_io_in_lazy_enumerators_and_each
    with_pair do |reader, writer|
      Heddle.run do
        task = Heddle.spawn { reader.each_line.lazy.map(&:chomp).reject(&:empty?).first(2) }
        other = Heddle.spawn { sleep(0.001) && :ran }
        assert_equal :ran, other.value
        writer.puts("", "one", "", "two")
        assert_equal %w[one two], task.value
      end
    end
  end

  def test_a_generator_whose_body_does_not_wait
    Heddle.run do
      numbers = Enumerator.new { |yielder| 3.times { |index| yielder << index } }
      sums = Array.new(5) { Heddle.spawn { numbers.dup.then { |copy| [copy.next, sleep(0.001), copy.next] } } }
      assert(sums.map(&:value).all? { |first, _, second| [first, second] == [0, 1] })
    end
  end

  def test_a_timeout_interrupts_in_the_innermost_fiber
    Heddle.run do
      steps = []
      error = assert_raises(Timeout::Error) do
        Timeout.timeout(0.02) do
          Fiber.new do
            sleep
          ensure
            steps << :inner
          end.resume
        ensure
          steps << :outer
        end
      end
      assert_instance_of Timeout::Error, error
      assert_equal %i[inner outer], steps
    end
  end

  def test_a_timeout_inside_the_nested_fiber_does_not_interrupt_the_outer
    Heddle.run do
      value = Fiber.new do
        Timeout.timeout(0.01) { sleep }
      rescue Timeout::Error
        :timed_out
      end.resume
      assert_equal :timed_out, value
    end
  end

  def test_a_nested_fiber_that_is_abandoned
    Heddle.run do
      100.times do
        Heddle.spawn do
          fiber = Fiber.new { Timeout.timeout(30) { Fiber.yield(1) && sleep } }
          fiber.resume
        end.value
      end
      GC.start
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_an_error_out_of_a_nested_fiber_that_waited
    Heddle.run do
      task = Heddle.spawn { Fiber.new { sleep(0.001) && raise(IOError, "inner") }.resume }
      assert_equal "inner", assert_raises(IOError) { task.value }.message
    end
  end

  def test_fibers_transferred_to_by_the_task
    Heddle.run do
      task = Heddle.spawn do
        mine = Fiber.current
        other = Fiber.new { sleep(0.001) && mine.transfer(:back) }
        other.transfer
      end
      assert task.wait(2), "lost between transfers"
      assert_equal :back, task.value
    end
  end
end
