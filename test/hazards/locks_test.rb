# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "monitor"
require "timeout"

# Locks, condition variables and queues under cancels, timeouts and closes.
class LocksTest < Minitest::Test
  include LoopHelpers

  def test_a_monitor_under_a_cancelled_holder
    monitor = Monitor.new
    Heddle.run do
      holder = Heddle.spawn { monitor.synchronize { sleep } }
      waiter = Heddle.spawn { monitor.synchronize { :entered } }
      assert_equal :waiting, waiter.status
      holder.cancel
      assert_equal :entered, waiter.value
      assert monitor.mon_try_enter
      monitor.mon_exit
    end
  end

  def test_a_monitors_condition_with_a_timeout_under_cancel
    monitor = Monitor.new
    condition = monitor.new_cond
    Heddle.run do
      owned = nil
      task = Heddle.spawn do
        monitor.synchronize do
          condition.wait(30)
        ensure
          owned = monitor.mon_owned?
        end
      end
      task.cancel.wait
      assert_equal [:cancelled, true], [task.status, owned]
      assert monitor.mon_try_enter, "the monitor stayed locked"
      monitor.mon_exit
    end
  end

  def test_a_condition_variable_with_a_timeout_under_cancel
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    Heddle.run do
      owned = []
      tasks = Array.new(10) do
        Heddle.spawn do
          mutex.synchronize do
            condition.wait(mutex, 30)
          ensure
            owned << mutex.owned?
          end
        end
      end
      tasks.each(&:cancel).each(&:wait)
      assert_equal [[:cancelled] * 10, [true] * 10], [tasks.map(&:status), owned]
      refute_predicate mutex, :locked?
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  # A signal must reach a fiber that waits, not one that was cancelled.
  def test_a_signal_after_a_cancel_reaches_the_next
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    Heddle.run do
      first, second = Array.new(2) { Heddle.spawn { mutex.synchronize { condition.wait(mutex) && :signalled } } }
      first.cancel.wait
      mutex.synchronize { condition.signal }
      assert second.wait(2), "the signal was lost"
    end
  end

  def test_mutex_sleep_with_a_timeout_and_under_cancel
    mutex = Thread::Mutex.new
    Heddle.run do
      mutex.synchronize do
        assert_within(2, at_least: 0.01) { mutex.sleep(0.01) }
        assert_predicate mutex, :owned?
      end
      owned = nil
      task = Heddle.spawn do
        mutex.synchronize do
          mutex.sleep
        ensure
          owned = mutex.owned?
        end
      end
      assert mutex.synchronize { true }, "it sleeps on the lock"
      task.cancel.wait
      assert_equal [:cancelled, true, false], [task.status, owned, mutex.locked?]
    end
  end

  def test_mutex_sleep_ended_by_a_timeout
    mutex = Thread::Mutex.new
    Heddle.run do
      assert_raises(Timeout::Error) { mutex.synchronize { Timeout.timeout(0.01) { mutex.sleep } } }
      refute_predicate mutex, :locked?
    end
  end

  # The wait can take the Mutex again only when the other fiber unlocks it; the cancelled fiber waits for that.
  def test_a_cancelled_condition_wait_whose_mutex_is_held_by_another
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    Heddle.run do
      task = Heddle.spawn { mutex.synchronize { condition.wait(mutex) } }
      holder = Heddle.spawn { mutex.synchronize { sleep(0.01) && :held } }
      task.cancel
      sleep(0.001)
      refute_predicate task, :ended?
      assert_equal :held, holder.value
      task.wait
      assert_equal :cancelled, task.status
      refute_predicate mutex, :locked?
    end
  end

  def test_a_queue_closed_under_its_readers
    queue = Thread::Queue.new
    Heddle.run do
      readers = Array.new(10) { Heddle.spawn { queue.pop } }
      queue.close
      assert_equal [nil] * 10, readers.map(&:value)
      assert_raises(ClosedQueueError) { queue << 1 }
    end
  end

  def test_a_sized_queue_closed_under_its_writers
    queue = Thread::SizedQueue.new(1) << :full
    Heddle.run do
      writers = Array.new(5) { Heddle.spawn { assert_raises(ClosedQueueError) { queue << 1 } } }
      queue.close
      writers.each { |writer| assert writer.wait(2), "a writer still waits for the closed queue" }
    end
  end

  def test_a_queue_closed_by_another_thread
    queue = Thread::Queue.new
    Heddle.run do
      reader = Heddle.spawn { queue.pop }
      Thread.new { queue.close }.join
      assert reader.wait(2)
      assert_nil reader.value
    end
  end

  def test_pop_with_a_timeout_beside_one_without
    skip "Queue#pop has had a timeout since Ruby 3.2" unless ruby_at_least?("3.2")
    queue = Thread::Queue.new
    Heddle.run do
      patient = Heddle.spawn { queue.pop }
      assert_nil queue.pop(timeout: 0.01)
      impatient = Array.new(20) { Heddle.spawn { queue.pop(timeout: 0.01) } }
      assert_equal [nil] * 20, impatient.map(&:value)
      queue << :item
      assert patient.wait(2), "the item went to a reader that had given up"
      assert_equal :item, patient.value
      assert_equal 0, queue.num_waiting
    end
  end

  def test_pop_with_a_timeout_under_cancel
    skip "Queue#pop has had a timeout since Ruby 3.2" unless ruby_at_least?("3.2")
    queue = Thread::Queue.new
    Heddle.run do
      task = Heddle.spawn { queue.pop(timeout: 30) }
      task.cancel.wait
      assert_equal [:cancelled, 0, 0], [task.status, queue.num_waiting, Fiber.scheduler.statistics[:timers]]
    end
  end
end
