# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "monitor"

class SynchronisationTest < Minitest::Test
  include LoopHelpers

  def test_a_mutex_between_tasks_that_wait_while_they_hold_it
    mutex = Thread::Mutex.new
    inside = most = total = 0
    Heddle.run do
      200.times do
        Heddle.spawn do
          mutex.synchronize do
            inside += 1
            most = [most, inside].max
            sleep(0)
            inside -= 1
            total += 1
          end
        end
      end
    end
    assert_equal [1, 200], [most, total]
  end

  def test_a_mutex_serves_its_waiters_in_order
    mutex = Thread::Mutex.new
    order = []
    Heddle.run do
      mutex.lock
      10.times { |index| Heddle.spawn { mutex.synchronize { order << index } } }
      mutex.unlock
    end
    assert_equal [*0...10], order
  end

  def test_a_monitor_belongs_to_its_fiber
    monitor = Monitor.new
    inside = 0
    Heddle.run do
      20.times do
        Heddle.spawn do
          monitor.synchronize do
            monitor.synchronize do
              inside += 1
              assert_equal 1, inside
              sleep(0)
              inside -= 1
            end
          end
        end
      end
    end
  end

  def test_a_condition_variable
    mutex = Thread::Mutex.new
    condition = Thread::ConditionVariable.new
    ready = false
    woken = 0
    Heddle.run do
      50.times do
        Heddle.spawn do
          mutex.synchronize do
            condition.wait(mutex) until ready
            assert_predicate mutex, :owned?
            woken += 1
          end
        end
      end
      mutex.synchronize { ready = true and condition.broadcast }
    end
    assert_equal 50, woken
  end

  def test_a_condition_variable_with_a_timeout
    mutex = Thread::Mutex.new
    condition = Thread::ConditionVariable.new
    Heddle.run do
      other = Heddle.spawn { sleep(0.001) && :ran }
      mutex.synchronize do
        assert_within(1, at_least: 0.02) { condition.wait(mutex, 0.02) }
        assert_predicate mutex, :owned?
      end
      assert_equal :ran, other.value
    end
  end

  # On Ruby before 3.4 the mutex stayed unlocked (https://github.com/ruby/ruby/pull/12158).
  def test_a_condition_variable_whose_wait_is_cancelled_locks_its_mutex_again
    mutex = Thread::Mutex.new
    condition = Thread::ConditionVariable.new
    owned = nil
    Heddle.run do
      waiter = Heddle.spawn do
        mutex.synchronize do
          condition.wait(mutex)
        ensure
          owned = mutex.owned?
        end
      end
      waiter.cancel.wait
      assert_equal [:cancelled, true, false], [waiter.status, owned, mutex.locked?]
      assert_nil waiter.error
    end
  end

  def test_a_queue_between_tasks
    queue = Thread::Queue.new
    received = []
    Heddle.run do
      readers = Array.new(5) do
        Heddle.spawn do
          while (item = queue.pop)
            received << item
          end
        end
      end
      100.times { |index| queue << index }
      queue.close
      readers.each(&:value)
    end
    assert_equal [*0...100], received.sort
  end

  def test_a_sized_queue_makes_its_writer_wait
    queue = Thread::SizedQueue.new(2)
    Heddle.run do
      writer = Heddle.spawn { 10.times { |index| queue << index } }
      assert_equal [:waiting, 2], [writer.status, queue.size]
      assert_equal [*0...10], Array.new(10) { queue.pop }
    end
  end

  def test_pop_and_push_with_a_timeout
    skip "Queue#pop has had a timeout since Ruby 3.2" unless ruby_at_least?("3.2")
    Heddle.run do
      assert_nil assert_within(1, at_least: 0.02) { Thread::Queue.new.pop(timeout: 0.02) }
      full = Thread::SizedQueue.new(1) << 1
      assert_nil assert_within(1, at_least: 0.02) { full.push(2, timeout: 0.02) }
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_a_thread_is_joined_while_others_run
    Heddle.run do
      gate = Thread::Queue.new
      thread = Thread.new { gate.pop }
      ticks = 0
      ticker = Heddle.spawn { 10.times { sleep(0.001) and ticks += 1 } && gate << :value }
      assert_equal :value, thread.value
      assert_same thread, thread.join
      assert_equal 10, ticks
      ticker.wait
    end
  end

  # Before Ruby 3.3 it never timed out (https://github.com/ruby/ruby/pull/7903).
  def test_a_join_with_a_timeout
    gate = Thread::Queue.new
    thread = Thread.new { gate.pop }
    Heddle.run do
      other = Heddle.spawn { sleep(0.001) && :ran }
      assert_nil assert_within(1, at_least: 0.05) { thread.join(0.05) }
      assert_equal :ran, other.value
      assert_nil thread.join(0)
      gate << 1
      assert_same thread, thread.join(10)
    end
  end

  def test_the_error_of_a_joined_thread_is_raised
    Heddle.run do
      thread = Thread.new { raise IOError, "from the thread" }
      thread.report_on_exception = false
      assert_equal "from the thread", assert_raises(IOError) { thread.value }.message
    end
  end

  def test_eight_threads_unblocking_at_once
    count = 2000
    queues = Array.new(8) { Thread::Queue.new }
    received = Array.new(8) { [] }
    Heddle.run do
      queues.each_with_index do |queue, index|
        Heddle.spawn { count.times { received[index] << queue.pop } }
      end
      threads = queues.map { |queue| Thread.new { count.times { |number| queue << number } } }
      threads.each(&:join)
    end
    8.times { |index| assert_equal [*0...count], received[index] }
  end

  def test_eight_threads_and_one_queue
    queue = Thread::Queue.new
    sum = 0
    Heddle.run do
      readers = Array.new(20) do
        Heddle.spawn do
          while (item = queue.pop)
            sum += item
          end
        end
      end
      threads = Array.new(8) { Thread.new { 1000.times { queue << 1 } } }
      threads.each(&:join)
      queue.close
      readers.each(&:value)
    end
    assert_equal 8000, sum
  end

  def test_a_loop_that_sleeps_is_woken_by_another_thread
    queue = Thread::Queue.new
    runner = Thread.new { Heddle.run { Array.new(50) { queue.pop } } }
    50.times do |index|
      wait_until { queue.num_waiting == 1 }
      queue << index
    end
    assert_equal [*0...50], runner.value
  end

  def test_loops_that_wake_each_other
    there, back = Thread::Queue.new, Thread::Queue.new
    echo = Thread.new { Heddle.run { while (item = there.pop) do back << item end } }
    Heddle.run do
      1000.times do |index|
        there << index
        assert_equal index, back.pop
      end
      there.close
    end
    echo.join
  end

  def test_unblock_for_a_fiber_that_is_not_blocked_does_nothing
    Heddle.run do
      scheduler = Fiber.scheduler
      scheduler.unblock(nil, Fiber.current)
      fiber = nil
      with_pair do |reader, writer|
        waiter = Heddle.spawn do
          fiber = Fiber.current
          reader.readpartial(1)
        end
        3.times { scheduler.unblock(:anything, fiber) }
        sleep(0)
        assert_equal :waiting, waiter.status # it waits for a descriptor, not for an unblock
        writer.write("x")
        assert_equal "x", waiter.value
      end
      scheduler.unblock(nil, fiber)
      scheduler.unblock(nil, Fiber.new {})
      assert_within(1, at_least: 0.01) { sleep(0.01) }
    end
  end

  def test_block_tells_whether_it_was_unblocked
    Heddle.run do
      scheduler = Fiber.scheduler
      assert_equal false, scheduler.block(:me, 0.01)
      fiber = nil
      waiter = Heddle.spawn { (fiber = Fiber.current) && scheduler.block(:me, 10) }
      Thread.new { scheduler.unblock(:somebody_else, fiber) }.join
      assert_equal true, waiter.value
      assert_equal 0, scheduler.statistics[:timers]
    end
  end
end
