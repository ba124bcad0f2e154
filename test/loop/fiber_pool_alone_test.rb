# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "shared/fiber_pools"

# Pools outside of any run: a call is a run, and leaves nothing behind; between two calls blocks only wait in the queue.
class FiberPoolAloneTest < Minitest::Test
  include LoopHelpers
  include FiberPoolSuite

  mode :blocking

  def in_host
    assert_nil Fiber.scheduler
    yield
    assert_nil Fiber.scheduler
  end

  def test_a_spawn_only_queues
    pool = Heddle::FiberPool.new(2)
    ended = []
    tasks = Array.new(3) { |index| pool.spawn { sleep(0.001) && ended << index } }
    assert_equal %i[queued queued queued], tasks.map(&:status)
    assert_equal({size: 2, running: 0, queued: 3, spawned: 3}, pool.statistics)
    assert_same pool, pool.wait
    assert_equal [[0, 1, 2], %i[completed completed completed]], [ended.sort, tasks.map(&:status)]
    assert_equal({size: 2, running: 0, queued: 0, spawned: 3}, pool.statistics)
  end

  # It runs what it holds, to its end.
  def test_a_spawn_that_finds_the_queue_full
    pool = Heddle::FiberPool.new(1, queue: 1)
    tasks = Array.new(3) { |index| pool.spawn { sleep(0.001) && index } }
    assert_equal %i[completed completed queued], tasks.map(&:status)
    assert_equal [0, 1, 2], tasks.map(&:value)
  end

  # A run that ended with the call, and then a map, another run: what is queued goes first.
  def test_a_map_runs_what_is_queued
    pool = Heddle::FiberPool.new(1)
    order = []
    pool.spawn { order << :queued }
    pool.map([1]) { order << :mapped }
    assert_equal %i[queued mapped], order
  end

  def test_a_value_or_a_wait_of_a_task_runs_the_pool
    pool = Heddle::FiberPool.new(2)
    first, second = pool.spawn { sleep(0.001) && 1 }, pool.spawn { 2 }
    assert_equal 2, second.value
    assert_equal [:completed, 1], [first.status, first.value]
    assert_equal 3, pool.spawn { 3 }.wait.value
    report = stderr_of { assert_raises(IOError) { pool.spawn { raise IOError }.value } }
    assert_empty report
    assert_equal :cancelled, pool.spawn { sleep }.wait(0.01).status
    assert_equal 4, Heddle.run { pool.spawn { 4 }.value }
  end

  # Nothing could run them afterwards.
  def test_a_wait_whose_time_is_over_cancels_the_tasks
    pool = Heddle::FiberPool.new(1)
    ended = []
    tasks = Array.new(2) do
      pool.spawn do
        sleep
      ensure
        ended << Heddle::Task.current.status
      end
    end
    assert_nil pool.wait(0.01)
    assert_equal [%i[cancelled cancelled], [:running]], [tasks.map(&:status), ended]
    assert_equal 1, pool.spawn { 1 }.value
  end

  def test_a_deadline_ends_a_call
    pool = Heddle::FiberPool.new(2)
    task = pool.spawn { sleep }
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { pool.wait } }
    assert_equal :cancelled, task.status
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { pool.map([1]) { sleep } } }
    assert_equal [1], pool.map([1]) { 1 }
  end

  # A deadline binds a block from its spawn on.
  def test_a_queued_task_keeps_its_deadline
    pool = Heddle::FiberPool.new(2)
    task = Heddle.deadline(0.05) { pool.spawn { sleep } }
    error = assert_raises(Heddle::DeadlineExceeded) { task.value }
    assert_includes error.message, "0.05"
  end

  def test_a_queued_task_that_is_cancelled
    pool = Heddle::FiberPool.new(2)
    task = pool.spawn { flunk }
    task.cancel
    assert_equal :cancelled, task.status
    assert_equal 0, pool.statistics[:queued]
    assert_match(/ 0 queued>/, pool.inspect)
    assert_raises(Heddle::TaskCancelled) { task.value }
    assert_same pool, pool.wait
  end

  def test_a_queued_task_is_taken_by_the_run_that_comes_next
    pool = Heddle::FiberPool.new(2)
    tasks = Array.new(3) { |index| pool.spawn { sleep(0.001) && [index, Fiber.scheduler] } }
    scheduler = Heddle.run { pool.spawn { Fiber.scheduler }.value }
    assert_equal [0, 1, 2].product([scheduler]), tasks.map(&:value)
  end

  # Ruby does not take anything of the pool's for its thread's: neither a lock, nor a sleep, nor a close.
  def test_innocent_code_between_two_calls
    assert_child(<<~RUBY)
      mutex, queue, locked = Mutex.new, Queue.new, Queue.new
      helper = Thread.new { mutex.synchronize { (locked << true) && sleep(0.05) } }
      locked.pop
      pool = Heddle::FiberPool.new(3)
      task = pool.spawn { mutex.synchronize { queue.pop } }
      server = TCPServer.new("127.0.0.1", 0)
      stopped = pool.spawn { server.accept rescue IOError }
      Thread.new { (sleep(0.02)) && queue << :pushed }
      started = Heddle::Clock.now
      sleep(0.1)
      exit!(2) if Heddle::Clock.now - started < 0.1
      server.close
      exit!((task.value == :pushed && stopped.value == IOError) ? 0 : 3)
    RUBY
  end

  # Also when the program ends inside of a task's Mutex, and with pools that nobody refers to.
  def test_a_program_that_ends_with_blocks_in_the_queue
    outcome = in_child(<<~RUBY, timeout: 20)
      mutex = Mutex.new.tap(&:lock)
      pool = Heddle::FiberPool.new(2, name: "lost")
      3.times { pool.spawn { mutex.synchronize { 1 } } }
      10.times { Heddle::FiberPool.new(2).spawn { sleep } }
      GC.start
    RUBY
    assert_predicate outcome.status, :success?
    assert_includes outcome.err, '3 of the blocks that #<Heddle::FiberPool "lost" 0 of 2 running, 3 queued> got ' \
      "outside of any run never ran: call its `wait` or `close`"
    assert_equal 11, outcome.err.lines.size
  end

  def test_a_pool_leaves_no_descriptor_behind
    GC.disable
    before = descriptor_count
    20.times { Heddle::FiberPool.new(2).map([1, 2]) { sleep(0) } }
    assert_equal before, descriptor_count
  ensure
    GC.enable
  end

  # While the source of items waits, tasks go on.
  def test_tasks_run_while_the_items_wait
    reader, writer = IO.pipe
    seen = []
    items = Enumerator.new do |y|
      y << 1
      seen << reader.gets
    end
    Heddle::FiberPool.new(2).each(items) { sleep(0.001) && writer.puts("went on") }
    assert_equal ["went on\n"], seen
  ensure
    [reader, writer].each(&:close)
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

  # Each thread's call is a run; two at once would be two loops for the pool's tasks.
  def test_a_call_in_another_thread_meanwhile
    pool = Heddle::FiberPool.new(2)
    %i[map each].each do |method|
      pool.map([1]) do
        error = Thread.new { assert_raises(Heddle::WrongThread) { pool.public_send(method, [1]) {} } }.value
        assert_includes error.message, "make a pool in this thread"
      end
      assert_equal 1, Thread.new { pool.public_send(method, [1]) { 1 } }.value.then { |value| Array(value).size }
    end
  end

  # They run there, or wait for the next call.
  def test_spawns_of_other_threads_meanwhile
    pool = Heddle::FiberPool.new(4, queue: 100)
    100.times do
      ran = Thread::Queue.new
      thread = Thread.new { Array.new(5) { pool.spawn { ran << 1 } } }
      pool.map([1, 2]) { sleep(0) }
      tasks = thread.value
      pool.wait
      assert_equal [5, [:completed]], [ran.size, tasks.map(&:status).uniq]
    end
  end

  def test_a_pool_whose_thread_has_ended
    pool = task = nil
    Thread.new { (pool = Heddle::FiberPool.new(2)) && task = pool.spawn { 1 } }.join
    assert_equal [1, [2]], [task.value, pool.map([1]) { 2 }]
    assert_same pool, pool.close
  end

  def test_a_pool_made_outside_and_used_in_runs
    pool = Heddle::FiberPool.new(2)
    2.times do
      schedulers = Heddle.run { pool.map([1]) { Fiber.scheduler } << Fiber.scheduler }
      assert_equal 1, schedulers.uniq.size
    end
    assert_equal [1], pool.map([1]) { 1 }
  end

  def test_a_pool_made_in_a_run_and_used_after_it
    pool = Heddle.run { Heddle::FiberPool.new(2).tap { |one| one.spawn { 1 }.value } }
    assert_equal [2, [3]], [pool.spawn { 2 }.value, Heddle.run { pool.map([1]) { 3 } }]
  end

  # A task that a block has spawned is not the pool's, and the call waits for it.
  def test_a_call_runs_tasks_spawned_in_it
    reader, writer = UNIXSocket.pair
    schedulers = []
    pool = Heddle::FiberPool.new(2)
    pool.map([1]) do
      schedulers << Fiber.scheduler
      Heddle.spawn { 2.times { (schedulers << Fiber.scheduler) && writer.puts(reader.gets) } }
      Heddle.spawn { sleep(0.001) && (schedulers << Fiber.scheduler) && writer.puts("echo") }
    end
    assert_kind_of Heddle::Scheduler, schedulers.first
    assert_equal [schedulers.first], schedulers.uniq
    assert_nil Fiber.scheduler
  ensure
    [reader, writer].each(&:close)
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
    assert_equal "[1, 2]\n[0, 0]\n[0, 2]\n:closed\n[3]\n[5]\n1\n", out
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
