# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit poll]

# Fibers are switched by transfer (doc/adr/0001-transfer-not-resume.md): its benefits and its costs.
class TransferTest < Minitest::Test
  include LoopHelpers

  def test_a_fiber_inside_a_task_may_wait
    with_pair do |reader, writer|
      Heddle.run do
        task = Heddle.spawn do
          fiber = Fiber.new do
            got = reader.readpartial(10)
            Fiber.yield(got)
            sleep(0.001)
            :ended
          end
          [fiber.resume, fiber.resume]
        end
        assert_equal :waiting, task.status
        writer.write("data")
        assert_equal ["data", :ended], task.value
      end
    end
  end

  def test_fibers_in_fibers
    Heddle.run do
      depth = lambda do |left|
        sleep(0.0001)
        left.zero? ? [] : [left] + Fiber.new { depth.call(left - 1) }.resume
      end
      results = Array.new(20) { Heddle.spawn { depth.call(10) } }.map(&:value)
      assert_equal [10.downto(1).to_a], results.uniq
    end
  end

  def test_an_enumerator_whose_each_waits_is_iterated_inside_and_outside
    numbers = Enumerator.new { |y| 3.times { |index| sleep(0.001) && y << index } }
    Heddle.run do
      assert_equal [0, 1, 2], numbers.to_a
      tasks = Array.new(3) do
        Heddle.spawn do
          copy = numbers.dup
          [copy.next, copy.next, copy.next, (copy.next rescue $!.class)] # rubocop:disable Style/RescueModifier
        end
      end
      assert_equal [[0, 1, 2, StopIteration]] * 3, tasks.map(&:value)
      assert_equal [[0, :a], [1, :b], [2, :c]], numbers.zip(%i[a b c].each)
    end
  end

  # On Ruby 3.1 an Enumerator's own fiber is a blocking one: its waits do not reach the scheduler, and stop the
  # thread.
  def test_other_tasks_run_while_an_enumerators_own_fiber_waits
    Heddle.run do
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.005) && ticks += 1 } }
      slow = Enumerator.new { |y| sleep(0.1) && y << :item }
      before = ticks
      assert_equal :item, slow.next
      passed = ticks - before
      ticker.cancel
      if ruby_at_least?("3.2")
        assert_operator passed, :>=, 3
      else
        assert_equal 0, passed, "an Enumerator's fiber does not block any more: doc/limits.md says it does"
      end
    end
  end

  def test_lazy_enumerators_and_generators
    Heddle.run do
      values = (1..Float::INFINITY).lazy.map { |number| sleep(0) && number * 2 }.select { |number| number % 3 == 0 }
        .first(3)
      assert_equal [6, 12, 18], values
      assert_equal [1, 2], Enumerator.produce(1) { |last| sleep(0) && last + 1 }.take(2)
    end
  end

  def test_an_error_in_a_nested_fiber_reaches_its_resumer
    Heddle.run do
      task = Heddle.spawn do
        Fiber.new { sleep(0.001) && raise(IOError, "nested") }.resume
      rescue IOError => error
        error.message
      end
      assert_equal "nested", task.value
    end
  end

  def test_a_cancel_is_raised_in_the_innermost_fiber_that_waits
    Heddle.run do
      seen = []
      task = Heddle.spawn do
        Fiber.new do
          Fiber.new do
            sleep
          ensure
            seen << :innermost
          end.resume
        ensure
          seen << :middle
        end.resume
      ensure
        seen << :task
      end
      task.cancel.wait
      assert_equal [%i[innermost middle task], :cancelled], [seen, task.status]
    end
  end

  def test_a_nested_fiber_belongs_to_its_task
    Heddle.run do
      inside = nil
      task = Heddle.spawn { Fiber.new { inside = Heddle::Task.current }.resume }
      assert_same task, inside
    end
  end

  # The cost: nobody resumed a task's fiber, so there is nobody to yield to.
  def test_fiber_yield_directly_in_a_task_raises_a_clear_error
    Heddle.run do
      error = Heddle.spawn { assert_raises(FiberError) { Fiber.yield } }.value
      assert_match(/yield/, error.message)
      assert_kind_of FiberError, Heddle.spawn { sleep(0) && assert_raises(FiberError) { Fiber.yield } }.value
      scheduled = nil
      Fiber.schedule { scheduled = assert_raises(FiberError) { Fiber.yield } }
      assert_kind_of FiberError, scheduled
    end
  end

  def test_a_user_cannot_resume_a_task_that_waits
    Heddle.run do
      fiber = nil
      task = Heddle.spawn { (fiber = Fiber.current) && sleep(0.01) && :slept }
      assert_raises(FiberError) { fiber.resume }
      assert_equal :slept, task.value
    end
  end

  def test_fiber_raise_reaches_a_waiting_fiber_and_the_caller_continues
    Heddle.run do
      fiber = nil
      task = Heddle.spawn do
        fiber = Fiber.current
        sleep
      rescue IOError => error
        error.message
      end
      fiber.raise(IOError, "into it")
      assert_equal "into it", task.value
    end
  end

  def test_a_fiber_that_waited_in_one_task_is_resumed_by_another
    Heddle.run do
      worker = Fiber.new do
        loop { Fiber.yield(sleep(0.001) && Heddle::Task.current) }
      end
      first = Heddle.spawn { worker.resume }
      first_seen = first.value
      second = Heddle.spawn { worker.resume }
      assert_same first, first_seen
      assert_same second, second.value
    end
  end

  def test_an_abandoned_waiting_nested_fiber_does_no_harm
    Heddle.run do
      20.times do
        task = Heddle.spawn { Fiber.new { sleep }.resume }
        task.cancel.wait
      end
      GC.start
      assert_equal :fine, Heddle.spawn { sleep(0.001) && :fine }.value
    end
  end
end
