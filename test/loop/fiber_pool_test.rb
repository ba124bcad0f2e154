# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

class FiberPoolTest < Minitest::Test
  include LoopHelpers

  # Behaviour inside a run and outside of any run.
  module Behaviour
    def test_map_keeps_the_order
      in_host do
        assert_equal (0...30).map { |index| index * 2 },
          Heddle::FiberPool.new(5).map(0...30) { |index| sleep(0.001 * (index % 3)) && index * 2 }
        assert_equal [], Heddle::FiberPool.new(5).map([]) { flunk }
        assert_equal [[1, 2], [3, 4]], Heddle::FiberPool.new(5).map({1 => 2, 3 => 4}) { |pair| pair }
        assert_equal [["a", 0], ["b", 1]],
          Heddle::FiberPool.new(5).map(%w[a b].each_with_index) { |letter, index| [letter, index] }
        assert_equal [nil, nil], Heddle::FiberPool.new(5).map([1, 2]) {}
      end
    end

    def test_map_and_each_of_something_without_items
      in_host do
        error = assert_raises(TypeError) { Heddle::FiberPool.new(2).map(nil) {} }
        assert_includes error.message, "nil has no method each"
      end
    end

    def test_no_more_tasks_than_the_size_run_at_once
      in_host do
        now = most = 0
        Heddle::FiberPool.new(4).map(0...40) do
          now += 1
          most = [most, now].max
          sleep(0.0005)
          now -= 1
        end
        assert_equal 4, most
      end
    end

    def test_the_first_error_cancels_the_rest_and_is_raised
      in_host do
        ensured = 0
        started = []
        error = assert_raises(IOError) do
          Heddle::FiberPool.new(5).map(0...100) do |index|
            started << index
            (index == 3) ? sleep(0.002) && raise(IOError, "third") : sleep
          ensure
            ensured += 1
          end
        end
        assert_equal ["third", [0, 1, 2, 3, 4], 5], [error.message, started, ensured]
      end
    end

    def test_an_error_before_the_first_wait
      in_host do
        pool = Heddle::FiberPool.new(2)
        report = stderr_of {
          assert_equal "at once", assert_raises(IOError) { pool.map(0...10) { raise IOError, "at once" } }.message
        }
        assert_empty report
        assert_equal [1, 2], pool.map([1, 2]) { |number| number } # it continues
      end
    end

    def test_each_over_an_endless_enumerator
      in_host do
        seen = []
        numbers = Enumerator.produce(0) { |last| last + 1 }
        assert_raises(StopIteration) do
          Heddle::FiberPool.new(3).each(numbers) do |number|
            sleep(0.0001)
            raise StopIteration if number == 50
            seen << number
          end
        end
        assert_operator seen.size, :>=, 45
        assert_operator seen.max, :<, 60
        pool = Heddle::FiberPool.new(3)
        assert_same pool, pool.each(1..3) {}
      end
    end

    def test_an_error_of_the_items_themselves
      in_host do
        ended = 0
        items = Enumerator.new do |y|
          y << 1
          y << 2
          raise IOError, "no more items"
        end
        error = assert_raises(IOError) do
          Heddle::FiberPool.new(5).each(items) do
            sleep
          ensure
            ended += 1
          end
        end
        assert_equal ["no more items", 2], [error.message, ended]
      end
    end

    def test_spawn_waits_while_the_queue_is_full
      in_host do
        pool = Heddle::FiberPool.new(2, queue: 3)
        most = 0
        tasks = Array.new(30) do |index|
          task = pool.spawn { sleep(0.001) && index }
          most = [most, pool.statistics[:queued]].max
          task
        end
        assert_equal [*0...30], tasks.map(&:value)
        assert_operator most, :<=, 3
        assert_equal({size: 2, running: 0, queued: 0, spawned: 30}, pool.wait.statistics)
      end
    end

    def test_a_queue_without_places
      in_host do
        pool = Heddle::FiberPool.new(1, queue: 0)
        order = []
        3.times { |index| pool.spawn { order << index && sleep(0.001) && order << index } }
        pool.wait
        assert_equal [0, 0, 1, 1, 2, 2], order
      end
    end

    def test_queued_tasks_run_in_their_order
      in_host do
        order = []
        pool = Heddle::FiberPool.new(1, queue: 100)
        50.times { |index| pool.spawn { sleep(0) && order << index } }
        pool.wait
        assert_equal [*0...50], order
      end
    end

    def test_cancelling_a_queued_task
      in_host do
        pool = Heddle::FiberPool.new(1, queue: 10)
        ran = []
        tasks = Array.new(4) { |index| pool.spawn { sleep(0.001) && ran << index } }
        assert_equal :queued, tasks[2].status
        tasks[2].cancel
        assert_equal :cancelled, tasks[2].status
        assert_raises(Heddle::TaskCancelled) { tasks[2].value }
        pool.wait
        assert_equal [0, 1, 3], ran
      end
    end

    def test_cancelled_tasks_make_room_in_the_queue
      in_host do
        pool = Heddle::FiberPool.new(1, queue: 2)
        first = pool.spawn { sleep(0.01) }
        queued = Array.new(2) { pool.spawn { flunk } }
        queued.each(&:cancel)
        last = assert_within(2, remeasure: 0) { Array.new(2) { |index| pool.spawn { index } } }
        assert_equal [0, 1], last.map(&:value)
        first.value
        pool.close
      end
    end

    def test_cancelling_a_running_task_starts_the_next
      in_host do
        pool = Heddle::FiberPool.new(1, queue: 10)
        first = pool.spawn { sleep }
        second = pool.spawn { :second }
        first.cancel
        assert_equal :second, second.value
      end
    end

    def test_wait_with_a_timeout
      in_host do
        pool = Heddle::FiberPool.new(1)
        task = pool.spawn { sleep }
        assert_nil assert_within(1, at_least: 0.01) { pool.wait(0.01) }
        task.cancel
        assert_same pool, pool.wait(10)
        assert_same pool, pool.wait(0)
      end
    end

    def test_close
      in_host do
        pool = Heddle::FiberPool.new(2)
        ended = []
        4.times { |index| pool.spawn { sleep(0.001) && ended << index } }
        assert_same pool, pool.close
        assert_equal [0, 1, 2, 3], ended.sort
        assert_predicate pool, :closed?
        assert_same pool, pool.close
        [-> { pool.spawn {} }, -> { pool.map([1]) {} }, -> { pool.each([1]) {} }].each do |use|
          error = assert_raises(Heddle::PoolClosed, &use)
          assert_kind_of ClosedQueueError, error
          assert_includes error.message, "closed"
        end
      end
    end

    def test_names_and_inspect
      in_host do
        pool = Heddle::FiberPool.new(2, name: "downloads")
        assert_equal "downloads", pool.spawn { Heddle::Task.current.name }.value
        assert_includes pool.inspect, '"downloads"'
      end
    end

    def test_fibers_are_reused
      in_host do
        assert_operator Heddle::FiberPool.new(3).map(0...100) { sleep(0) && Fiber.current }.uniq.size, :<=, 4
      end
    end

    def test_spawn_from_eight_threads_at_once
      in_host do
        pool = Heddle::FiberPool.new(5, queue: 10)
        threads = Array.new(8) { |number|
          Thread.new { Array.new(100) { |index| pool.spawn { sleep(0) && number * 100 + index } }.map(&:value) }
        }
        # Outside a run the pool's loop runs only in the pool's own calls. Between two of them the threads must get
        # the GVL.
        pool.wait(0.05) while threads.any?(&:alive?) && sleep(0.0005)
        assert_equal [*0...800], threads.flat_map(&:value)
        assert_equal 800, pool.wait.statistics[:spawned]
      end
    end

    def test_a_pool_in_a_pool
      in_host do
        sums = Heddle::FiberPool.new(3)
          .map(1..5) { |outer| Heddle::FiberPool.new(2).map(1..4) { |inner| sleep(0.0005) && outer * inner }.sum }
        assert_equal [10, 20, 30, 40, 50], sums
      end
    end

    def test_many_pools_leave_nothing_open
      in_host do
        Heddle::FiberPool.new(2).map(1..3) { sleep(0) }
        GC.start
        before = descriptor_count
        200.times { Heddle::FiberPool.new(2).tap { |pool| pool.map(1..3) { sleep(0) } }.close }
        assert_operator descriptor_count, :<=, before
      end
    end
  end

  class InARun < Minitest::Test
    include LoopHelpers
    include Behaviour

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
  end

  class OnItsOwn < Minitest::Test
    include LoopHelpers
    include Behaviour

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
