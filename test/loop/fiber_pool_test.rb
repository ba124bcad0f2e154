# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "shared/fiber_pools"

# Pools inside a run: their tasks run in the loop of the run.
class FiberPoolTest < Minitest::Test
  include LoopHelpers
  include FiberPoolSuite

  mode :fiber

  # Its last wait was over before the cancel. A task that starts after the cancel of all tasks would be waited for
  # until the run's grace is over.
  def test_a_cancelled_task_cannot_start_pool_tasks
    Heddle.run do
      pool = Heddle::FiberPool.new(2)
      queue = Thread::Queue.new
      ran = nil
      task = Heddle.spawn { queue.pop && pool.spawn { ran = true } }
      queue << :go
      task.cancel
      task.wait
      assert_equal [:cancelled, nil], [task.status, ran]
      assert_equal 1, pool.spawn { 1 }.value
      assert_equal 1, pool.statistics[:spawned]
    end
  end

  def in_host(&block) = Heddle.run(&block)

  def test_an_unclaimed_error_is_raised_from_the_run
    report = stderr_of {
      assert_equal "unasked",
        assert_raises(IOError) { Heddle.run { Heddle::FiberPool.new(2).spawn { raise IOError, "unasked" } } }.message
    }
    assert_includes report, "unasked"
  end

  def test_the_run_waits_for_tasks_queued_in_the_pool
    ended = []
    Heddle.run do
      pool = Heddle::FiberPool.new(1, queue: 10)
      5.times { |index| pool.spawn { sleep(0.001) && ended << index } }
    end
    assert_equal [0, 1, 2, 3, 4], ended
  end

  def test_an_error_in_the_block_cancels_tasks_queued_in_the_pool
    ran = []
    assert_raises(IOError) do
      Heddle.run do
        pool = Heddle::FiberPool.new(1, queue: 10)
        5.times { |index| pool.spawn { (ran << index) && sleep } }
        raise IOError
      end
    end
    assert_equal [0], ran
  end

  # A nil among the values would look like the block's own.
  def test_an_item_that_is_cancelled_has_no_value
    in_host do
      pool = Heddle::FiberPool.new(3)
      error = assert_raises(Heddle::TaskCancelled) do
        pool.map(1..3) { |item| (item == 2) ? Heddle::Task.current.cancel : sleep(0.001) && item }
      end
      assert_includes error.message, "has no value"
      assert_raises(Heddle::TaskCancelled) { pool.each([1]) { Heddle::Task.current.cancel } }
      assert_equal [1, 2], pool.map([1, 2]) { |item| sleep(0.001) && item }
    end
  end

  def test_map_that_is_cancelled_cancels_its_tasks
    Heddle.run do
      pool = Heddle::FiberPool.new(2)
      ensured = 0
      caller = Heddle.spawn do
        pool.map(1..10) do
          sleep
        ensure
          ensured += 1
        end
      end
      wait_until { pool.statistics[:running] == 2 }
      caller.cancel.wait
      assert_equal [:cancelled, 2], [caller.status, ensured]
      assert_equal [0, 0], pool.statistics.values_at(:running, :queued)
      assert_equal [1], pool.map([1]) { |number| number }
    end
  end

  # The caller is cancelled between the pool's creation and its first task.
  def test_a_caller_that_is_cancelled_before_its_first_task_starts
    Heddle.run do
      pool = nil
      task = Heddle.spawn { (pool = Heddle::FiberPool.new(1)).map([1]) { sleep } }
      task.cancel
      assert task.wait(5), "a task that never started is waited for"
      assert_equal :cancelled, task.status
      assert_equal 0, pool.statistics[:running] if pool
    end
  end

  # They are cancelled before the loop has reached them; the pool's places are then free for others.
  def test_tasks_of_another_thread_cancelled_before_they_start
    in_host do
      pool = Heddle::FiberPool.new(1)
      ran = []
      last = Thread.new do
        10.times { |index| pool.spawn { ran << index }.cancel }
        pool.spawn { ran << :last && :value }
      end.value
      assert_equal :value, last.value
      assert_includes ran, :last
      assert_equal 0, pool.wait.statistics[:running]
    end
  end

  def test_several_maps_of_one_pool_share_its_size
    Heddle.run do
      pool = Heddle::FiberPool.new(3)
      now = most = 0
      maps = Array.new(4) do |number|
        Heddle.spawn do
          pool.map(0...10) do |index|
            now += 1
            most = [most, now].max
            sleep(0.0005)
            now -= 1
            number * 10 + index
          end
        end
      end
      assert_equal [*0...40], maps.flat_map(&:value)
      assert_equal 3, most
    end
  end

  def test_nested_runs_wait_for_their_own_pool_tasks
    Heddle.run do
      outer = Heddle::FiberPool.new(1)
      long = outer.spawn { sleep(0.2) && :outer }
      Heddle.run { Heddle::FiberPool.new(1).spawn { sleep(0.001) } }
      refute_predicate long, :ended?
      assert_equal :outer, long.value
    end
  end

  # Two places become free at once; the first of them belongs to whoever has waited longer, although that one has not
  # run yet when the other comes.
  def test_a_newcomer_does_not_overtake_one_whose_turn_has_come
    Heddle.run do
      order = []
      pool = Heddle::FiberPool.new(1, queue: 2)
      running, *queued = Array.new(3) { pool.spawn { sleep(0.01) } }
      waiter = Heddle.spawn { pool.spawn { order << :waiter } }
      queued.each(&:cancel)
      pool.spawn { order << :newcomer }
      [waiter, running].each(&:wait)
      pool.wait
      assert_equal %i[waiter newcomer], order
    end
  end
end
