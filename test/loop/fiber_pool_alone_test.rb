# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "shared/fiber_pools"

# Pools outside of any run: each has a loop of its own, which runs during its calls.
class FiberPoolAloneTest < Minitest::Test
  include LoopHelpers
  include FiberPoolSuite

  mode :blocking

  def in_host
    assert_nil Fiber.scheduler
    yield
    assert_nil Fiber.scheduler
  end

  def test_tasks_continue_in_the_next_call
    pool = Heddle::FiberPool.new(2)
    ended = []
    tasks = Array.new(2) { |index| pool.spawn { sleep(0.001) && ended << index } }
    assert_equal %i[waiting waiting], tasks.map(&:status)
    pool.wait
    assert_equal [0, 1], ended.sort
  end

  # Between two calls Ruby has no scheduler that it could tell of a signal, a push, an unlock.
  def test_wake_ups_of_a_task_between_two_calls
    pool = Heddle::FiberPool.new(6)
    lock, mutex, condition, queue = Thread::Mutex.new, Thread::Mutex.new, Thread::ConditionVariable.new,
      Thread::Queue.new
    due = false
    lock.lock
    tasks = [
      pool.spawn { mutex.synchronize { condition.wait(mutex) until due } || :signalled },
      pool.spawn { mutex.synchronize { condition.wait(mutex, 60) until due } || :signalled },
      pool.spawn { queue.pop },
      pool.spawn { lock.synchronize { :locked } }
    ]
    sleeper = pool.spawn { monotonic.then { |start| sleep(0.05) && monotonic - start } }
    assert_equal [:waiting] * 4, tasks.map(&:status)
    mutex.synchronize { (due = true) && condition.broadcast }
    queue << :pushed
    lock.unlock
    assert_within(5, remeasure: 0) { assert_equal %i[signalled signalled pushed locked], tasks.map(&:value) }
    assert_operator sleeper.value, :>=, 0.05, "a sleep ended with the others' waits"
    pool.close
  end

  def test_a_join_lasts_over_several_calls
    lock = Thread::Mutex.new.tap(&:lock)
    helper = Thread.new { lock.synchronize { :its_value } }
    pool = Heddle::FiberPool.new(3)
    joining = [pool.spawn { helper.join }, pool.spawn { helper.value }]
    3.times { pool.spawn { sleep(0.001) }.value }
    lock.unlock
    assert_equal [helper, :its_value], joining.map(&:value)
    pool.close
  end

  def test_an_unclaimed_error_is_raised_from_wait
    pool = Heddle::FiberPool.new(2)
    report = stderr_of do
      pool.spawn { sleep(0.001) && raise(IOError, "unasked") }
      assert_equal "unasked", assert_raises(IOError) { pool.wait }.message
    end
    assert_includes report, "unasked"
    assert_same pool, pool.wait
    pool.close
  end

  def test_in_a_thread
    assert_equal [2, 4],
      Thread.new { Heddle::FiberPool.new(2).map([1, 2]) { |number| sleep(0.001) && number * 2 } }.value
  end

  # It would wait for the loop to run in a thread that may never run it.
  def test_a_map_in_another_thread_than_the_pools
    pool = Heddle::FiberPool.new(2)
    %i[map each].each do |method|
      error = Thread.new { assert_raises(Heddle::WrongThread) { pool.public_send(method, [1]) {} } }.value
      assert_includes error.message, "make a pool in this thread"
    end
  end

  def test_a_pool_whose_thread_is_gone
    pool = Thread.new { Heddle::FiberPool.new(2) }.value
    error = assert_raises(Heddle::WrongThread) { pool.spawn {} }
    assert_includes error.message, "whose thread has ended"
    assert_same pool, pool.close
    task = nil
    pool = Thread.new { Heddle::FiberPool.new(2).tap { |one| task = one.spawn { sleep } } }.value
    assert_equal :cancelled, task.status
    assert_same pool, pool.wait
  end

  def test_a_pool_made_outside_and_used_in_a_run
    pool = Heddle::FiberPool.new(2)
    error = assert_raises(ThreadError) { Heddle.run { pool.map([1]) {} } }
    assert_includes error.message, "make the pool in that thread"
  end

  # A task that a block has spawned is not the pool's, and close waits for it.
  def test_close_runs_tasks_spawned_under_the_pools_scheduler
    reader, writer = UNIXSocket.pair
    schedulers = []
    pool = Heddle::FiberPool.new(2)
    pool.map([1]) do
      schedulers << Fiber.scheduler
      Heddle.spawn { 2.times { (schedulers << Fiber.scheduler) && writer.puts(reader.gets) } }
      Heddle.spawn { sleep(0.001) && (schedulers << Fiber.scheduler) && writer.puts("echo") }
    end
    pool.close
    assert_kind_of Heddle::Scheduler, schedulers.first
    assert_equal [schedulers.first], schedulers.uniq
    assert_nil Fiber.scheduler
  ensure
    [reader, writer].each(&:close)
  end

  def test_a_scheduler_that_is_not_set_runs_its_tasks_when_it_is_closed
    scheduler = Heddle::Scheduler.new
    seen = []
    scheduler.attached { Fiber.schedule { sleep(0.001) && seen << Fiber.scheduler } }
    scheduler.close
    assert_equal [scheduler], seen
    assert_predicate scheduler, :closed?
    assert_nil Fiber.scheduler
  end

  def test_a_pool_without_close_is_collected
    before = descriptor_count
    out = assert_child(<<~RUBY)
      # In a thread that is gone then: what it left on its stack would keep a pool, and with it those made just
      # before.
      Thread.new { 300.times { Heddle::FiberPool.new(2).map([1, 2]) { sleep(0) } } }.join
      GC.start
      puts Dir.children("/proc/self/fd").size < 100
    RUBY
    assert_equal "true\n", out
    assert_operator descriptor_count, :<=, before
  end

  # The parent's tasks occupy its places, and the queue is full.
  def test_a_child_of_fork
    out = assert_child(<<~RUBY)
      def in_fork = Process.wait(fork { yield && exit!(0) })
      gate = Thread::Queue.new
      pool = Heddle::FiberPool.new(1, queue: 1)
      2.times { pool.spawn { gate.pop } }
      in_fork { p pool.map([1, 2]) { |item| sleep(0.001) && item }, pool.close.statistics.values_at(:running, :queued) }
      p pool.statistics.values_at(:running, :queued)
      2.times { gate << nil }
      pool.close
      in_fork { begin; pool.spawn { 1 }; rescue Heddle::PoolClosed; p :closed; end }
      Heddle.run do
        inner = Heddle::FiberPool.new(1, queue: 0)
        inner.spawn { gate.pop }
        in_fork { p inner.map([3]) { |item| item } }
        in_fork { p Heddle.run { inner.map([5]) { |item| item } } }
        p inner.statistics[:running]
        gate << nil
      end
    RUBY
    assert_equal "[1, 2]\n[0, 0]\n[1, 1]\n:closed\n[3]\n[5]\n1\n", out
  end

  # Each finds the parent's state. A second one that begins anew would drop the tasks of the first, and its loop.
  def test_two_threads_of_a_child_of_fork_that_use_the_pool_first
    out = assert_child(<<~RUBY)
      pool = Heddle::FiberPool.new(4)
      pool.map([1]) { 1 }
      20.times do
        pid = fork do
          passed = %i[new compare_by_identity]
          passing = TracePoint.new(:c_call) { |point| Thread.pass if passed.include?(point.method_id) }
          passing.enable
          used, gate = Thread::Queue.new, Thread::Queue.new
          threads = Array.new(2) do
            Thread.new { (used << pool.spawn {}) && gate.pop || pool.wait(5) }
          end
          tasks = Array.new(2) { used.pop }
          gate.close
          threads.each(&:join)
          exit!((pool.statistics[:spawned] == 2 && tasks.all?(&:ended?)) ? 0 : 3)
        end
        puts Process.wait2(pid).last.exitstatus
      end
    RUBY
    assert_equal ["0"] * 20, out.split
  end
end
