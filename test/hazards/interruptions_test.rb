# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit]

# What can be raised in a task from outside (cancel, Fiber#raise, Timeout), in each of the task's states.
class InterruptionsTest < Minitest::Test
  include LoopHelpers

  # Each way to wait, by what a task does that waits so.
  WAITS = {
    "a sleep" => ->(_) { sleep },
    "a descriptor" => ->(reader) { reader.readpartial(1) },
    "several descriptors" => ->(reader) { IO.select([reader]) },
    "a queue" => ->(_) { Thread::Queue.new.pop },
    "a condition variable" => ->(_) { InterruptionsTest.await_condition },
    "a mutex" => ->(_) { InterruptionsTest.await_mutex },
    "a thread" => ->(_) { Thread.new { sleep(60) }.join },
    "a child" => ->(_) { InterruptionsTest.await_child },
    "a task" => ->(_) { Heddle.spawn { sleep(0.3) }.value },
    "a timeout" => ->(_) { Timeout.timeout(60) { sleep } },
    "a nested run" => ->(_) { Heddle.run { sleep } }
  }.freeze

  def self.await_condition
    mutex = Thread::Mutex.new
    mutex.synchronize { Thread::ConditionVariable.new.wait(mutex) }
  end

  def self.await_mutex
    mutex = Thread::Mutex.new
    holder = Heddle.spawn { mutex.synchronize { sleep } }
    mutex.lock
  ensure
    holder.cancel
  end

  def self.await_child
    pid = Process.spawn("sleep 60")
    Process.wait(pid)
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  WAITS.each do |name, wait|
    method = name.tr(" ", "_")

    define_method("test_cancel_while_it_waits_for_#{method}") do
      interrupted(wait) { |task, _| task.cancel }
      assert_equal [:cancelled, Heddle::Cancellation], [@task.status, @raised]
    end

    define_method("test_fiber_raise_while_it_waits_for_#{method}") do
      interrupted(wait) { |_, fiber| fiber.raise(IOError, "from outside") }
      assert_equal [IOError, :failed], [@raised, @task.status]
    end

    define_method("test_timeout_while_it_waits_for_#{method}") do
      interrupted(->(reader) { Timeout.timeout(0.15) { wait.call(reader) } }) {}
      assert_equal Timeout::Error, @raised
    end
  end

  def test_cancel_of_a_ready_task_that_has_not_run
    Heddle.run do
      steps = []
      task = Heddle.spawn do
        steps << 1
        sleep(0)
        steps << 2
        sleep(0)
        steps << 3
      end
      task.cancel.wait
      assert_equal :cancelled, task.status
      refute_includes steps, 3
    end
  end

  def test_a_lock_that_was_handed_over_to_a_cancelled_task_is_not_lost
    mutex = Thread::Mutex.new
    Heddle.run do
      mutex.lock
      first = Heddle.spawn { mutex.synchronize { :first } }
      second = Heddle.spawn { mutex.synchronize { :second } }
      mutex.unlock
      first.cancel
      assert second.wait(2), "the wake-up was lost"
      assert_equal :second, second.value
      refute_predicate mutex, :locked?
    end
  end

  def test_an_item_of_a_queue_is_not_lost_in_a_cancelled_task
    queue = Thread::Queue.new
    Heddle.run do
      got = []
      tasks = Array.new(2) { Heddle.spawn { got << queue.pop } }
      queue << 1
      tasks.first.cancel
      queue << 2
      tasks.each(&:wait)
      got << queue.pop until queue.empty?
      assert_equal [1, 2], got.sort
    end
  end

  def test_an_exception_raised_during_ensure_interrupts_there
    Heddle.run do
      steps = []
      fiber = nil
      task = Heddle.spawn do
        fiber = Fiber.current
        sleep
      ensure
        begin
          steps << :cleaning
          sleep
        ensure
          steps << :inner
        end
        steps << :never
      end
      task.cancel
      sleep(0.001)
      task.cancel # one request is enough: clean-up is not interrupted
      sleep(0.001)
      assert_equal [:cleaning], steps
      fiber.raise(IOError, "again")
      assert_kind_of IOError, assert_raises(Heddle::TaskCancelled) { task.value }.cause
      assert_equal %i[cleaning inner], steps
    end
  end

  def test_timeouts_nested_the_outer_first
    Heddle.run do
      error = assert_raises(IOError) do
        Timeout.timeout(0.01, IOError) { Timeout.timeout(0.02, ArgumentError) { sleep } }
      end
      assert_instance_of IOError, error
    end
  end

  def test_a_timeout_that_interrupts_in_ensure
    Heddle.run do
      steps = []
      assert_raises(Timeout::Error) do
        Timeout.timeout(0.02) do
          raise IOError
        ensure
          begin
            sleep(5)
          ensure
            steps << :inner
          end
        end
      end
      assert_equal [:inner], steps
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_timeout_around_a_task_that_ends_at_the_same_instant
    Heddle.run do
      200.times do
        Timeout.timeout(0.001) { sleep(0.001) }
      rescue Timeout::Error
        nil
      end
      assert_within(1, at_least: 0.01, remeasure: 0) { sleep(0.01) } # nothing fires late
    end
  end

  def test_fiber_raise_in_a_task_that_is_ready
    Heddle.run do
      fiber = nil
      task = Heddle.spawn do
        fiber = Fiber.current
        sleep(0)
        :not_reached
      rescue IOError => error
        error.message
      end
      fiber.raise(IOError, "ready")
      assert_equal "ready", task.value
    end
  end

  def test_fiber_raise_in_one_of_several_that_are_ready
    Heddle.run do
      fibers = []
      order = []
      tasks = Array.new(3) do |index|
        Heddle.spawn do
          fibers << Fiber.current
          Fiber.scheduler.block(:test)
          order << index
        rescue IOError => error
          order << error.message
        end
      end
      fibers.each { |fiber| Fiber.scheduler.unblock(:test, fiber) }
      fibers[1].raise(IOError, "in the middle")
      tasks.each(&:wait)
      assert_equal ["in the middle", 0, 2], order
    end
  end

  def test_fiber_raise_in_a_fiber_that_has_ended
    Heddle.run do
      fiber = Fiber.schedule {}
      assert_raises(FiberError) { fiber.raise(IOError) }
      assert_equal :still_here, Heddle.spawn { sleep(0) && :still_here }.value
    end
  end

  # A worker fiber between two tasks belongs to no task.
  def test_fiber_raise_in_an_idle_worker_fiber_does_no_harm
    Heddle.run do
      fiber = nil
      Heddle.spawn { fiber = Fiber.current }
      begin
        fiber.raise(IOError, "to no fiber")
      rescue IOError, FiberError
        nil
      end
      assert_equal :ran, Heddle.spawn { sleep(0.001) && :ran }.value
      assert_equal 20, Array.new(20) { Heddle.spawn { sleep(0.001) } }.each(&:wait).size
    end
  end

  private

  # Starts a task that waits, lets the block interrupt it, and waits for its end.
  def interrupted(wait)
    errors = stderr_of do
      with_pair do |reader, writer|
        Heddle.run do
          fiber = nil
          @task = Heddle.spawn do
            fiber = Fiber.current
            wait.call(reader)
          rescue Exception => error # rubocop:disable Lint/RescueException
            @raised = error.class
            raise
          end
          3.times { sleep(0) } # tasks that start a task first reach their wait now
          assert_equal :waiting, @task.status
          yield @task, fiber
          assert @task.wait(5), "not interrupted"
          witness = Heddle.spawn { sleep(0.001) && :witness }
          assert_equal :witness, witness.value
          writer.write("late")
          assert_equal "late", reader.readpartial(10), "the interrupted wait took a byte"
          begin
            @task.value
          rescue Exception # rubocop:disable Lint/RescueException
            nil
          end
        end
      end
    end
    refute_match(/BUG|assert/i, errors)
  end
end
