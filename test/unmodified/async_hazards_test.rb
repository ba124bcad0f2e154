# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/barrier"
require "async/semaphore"
require "async/queue"
require "socket"

# What breaks loops, under Async's API: cancellation at each switch, thousands of timeouts, threads, forks, signals, the
# garbage collector; and Heddle's own deadlines and cancellation beside Async's tasks.
class AsyncHazardsTest < Minitest::Test
  include QuietAsync

  mode :fiber

  # ---- Heddle's tasks and Async's

  def test_an_async_task_is_listed_as_a_task
    on_heddle do |task|
      child = task.async(annotation: "the child") { sleep }
      listed = Fiber.scheduler.tasks.find { |listed| listed.name == "the child" }
      assert_equal :waiting, listed.status
      assert_equal "the end of a sleep", listed.waits_for
      assert_includes listed.backtrace.join, __method__.to_s
      child.stop
      task.yield
      assert listed.ended?
      refute_includes Fiber.scheduler.tasks, listed
    ensure
      child&.stop
    end
  end

  def test_a_deadline_binds_async_tasks
    on_heddle do |task|
      child = Heddle.deadline(0.01) { task.async { |inner| inner.async { sleep }.wait } }
      assert_raises(Heddle::DeadlineExceeded) { assert_within(5) { child.wait } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.01) { task.async { sleep }.wait } }
    end
  end

  def test_the_end_of_a_run_stops_async_tasks
    ends = []
    assert_raises(IOError) do
      Heddle.run do
        Async do
          sleep
        rescue Async::Stop
          ends << :stopped
          raise
        ensure
          sleep(0.001)
          ends << :ensure
        end
        sleep(0.001)
        raise IOError, "the block's"
      end
    end
    assert_equal [:stopped, :ensure], ends
  end

  def test_cancelling_an_async_task_as_a_task_of_heddles
    arrived = nil
    Heddle.run do
      child = Async do
        sleep
      rescue Exception => exception # rubocop:disable Lint/RescueException
        arrived = exception
        raise
      end
      Fiber.scheduler.tasks.last.cancel
      child.wait
      assert_includes %i[stopped cancelled], child.status
    end
    assert_kind_of Async::Stop, arrived
  end

  def test_a_deferred_stop_defers_a_cancellation
    events = []
    Heddle.run do
      child = Async do |task|
        task.defer_stop { sleep(0.01) && events << :protected }
        events << :never
      ensure
        events << :ensure
      end
      Fiber.scheduler.tasks.last.cancel
      child.wait
    end
    assert_equal [:protected, :ensure], events
  end

  def test_a_task_of_heddles_inside_async
    on_heddle do |task|
      inner = Heddle.spawn { sleep(0.001) && Async { sleep(0.001) && 1 }.wait + 1 }
      assert_equal 2, inner.value
      gate = Thread::Queue.new
      cancelled = Heddle.spawn { Sync { gate.pop } } # a task of its own, which goes on
      cancelled.cancel
      assert_raises(Heddle::TaskCancelled) { cancelled.value }
      gate.close
      assert_equal [0, 1, 2], Heddle::FiberPool.new(2).map(3.times) { |i| task.async { sleep(0.001) && i }.wait }
      assert_equal 5, Heddle.run { Async { sleep(0.001) && 5 }.wait }
    end
  end

  def test_a_pool_with_a_loop_of_its_own
    pool = Heddle::FiberPool.new(3)
    assert_equal [0, 1, 4], pool.map(3.times) { |i| Sync { |task| task.async { sleep(0.001) && i * i }.wait } }
    pool.close
  end

  def test_a_run_waits_for_async_tasks_but_not_for_transient_ones
    events = []
    value = Heddle.run do
      Async { sleep(0.005) && events << :waited }
      Async(transient: true) do |task|
        task.async { sleep }
        sleep
      ensure
        events << :transient
      end
      :value
    end
    assert_equal :value, value
    assert_equal [:waited, :transient], events
  end

  def test_a_run_does_not_wait_for_a_task_that_becomes_transient
    ended = []
    assert_within(5, remeasure: 0) do
      Heddle.run do
        inner = nil
        outer = Async do |task|
          inner = task.async { sleep }
          sleep
        ensure
          ended << :outer
        end
        Async { |task| (task.transient = true) && sleep }
        Async { [inner, outer].each { |task| task.transient = true } }
      end
    end
    assert_equal [:outer], ended
  end

  def test_fiber_schedule_of_a_run_stays_heddles
    error = assert_raises(IOError) do
      capture_io { Heddle.run { Fiber.schedule { sleep(0.001) && raise(IOError, "scheduled") } } }
    end
    assert_equal "scheduled", error.message
  end

  def test_a_task_cannot_close_the_scheduler_of_its_run
    Heddle.run do
      assert_raises(ThreadError) { Fiber.scheduler.close }
      assert_raises(ThreadError) { Async { Fiber.scheduler.close }.wait }
      assert_equal 1, Async { sleep(0.001) && 1 }.wait
    end
  end

  # ---- cancellation

  # Stops a busy task after each number of turns; whatever it had, it gives back.
  def test_stop_at_every_switch
    60.times do |turns|
      on_heddle do |task|
        semaphore = Async::Semaphore.new(1)
        queue = Async::Queue.new
        mutex = Thread::Mutex.new
        here, there = UNIXSocket.pair
        feeder = task.async do
          loop do
            queue << 1
            there.write("x")
            task.yield
          end
        end
        victim = task.async do |busy|
          Kernel.loop do
            semaphore.acquire { mutex.synchronize { busy.with_timeout(60) { here.readpartial(1) } } }
            busy.async { queue.dequeue }.wait
            sleep(0)
          end
        end
        other = task.async { 3.times { semaphore.acquire { mutex.synchronize { sleep(0) } } } }
        turns.times { task.yield }
        victim.stop
        victim.wait
        other.wait
        feeder.stop
        assert_equal 0, semaphore.count
        refute mutex.locked?
        here.close
        there.close
      end
    end
  end

  def test_errors_that_are_no_standard_errors_end_the_loop
    assert_raises(NotImplementedError) do
      Sync { |task| task.async { sleep(0.001) && raise(NotImplementedError) } && sleep }
    end
    assert_raises(SystemExit) { Heddle.run { Async { sleep(0.001) && exit } && sleep } }
    assert_raises(NotImplementedError) { Heddle.run { Async { raise NotImplementedError } } }
  end

  # ---- timeouts

  def test_ten_thousand_timeouts
    on_heddle do |task|
      ended = 0
      children = Array.new(10_000) do |i|
        task.async do |child|
          i.even? ? child.with_timeout(0.001 + i % 10 * 0.001) { sleep } : child.with_timeout(60) { sleep(0) }
        rescue Async::TimeoutError
          ended += 1
        end
      end
      children.each(&:wait)
      assert_equal 5000, ended
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  # ---- threads, forks, signals

  def test_reactors_in_threads
    values = Array.new(4) do |i|
      Thread.new { Sync { |task| Array.new(10) { |j| task.async { sleep(0.001) && i * j } }.sum(&:wait) } }
    end
    assert_equal [0, 45, 90, 135], values.map(&:value)
    Sync { assert_equal 3, Thread.new { Sync { sleep(0.001) && 3 } }.value }
  end

  def test_wake_ups_from_threads
    on_heddle do |task|
      there = Thread::Queue.new
      back = Thread::Queue.new
      thread = Thread.new { while (item = there.pop) do back << item end }
      children = Array.new(5) { task.async { 200.times { |i| there << i && back.pop } } }
      children.each(&:wait)
      there << nil
      thread.join
      promise = Thread::Queue.new
      waiting = task.async { promise.pop }
      Thread.new { sleep(0.001) && promise << :from_thread }.join
      assert_equal :from_thread, waiting.wait
    end
  end

  def test_interrupt_from_a_thread
    reactor = Async::Reactor.new
    reactor.async { sleep }
    thread = Thread.new { Kernel.sleep(0.01) && reactor.interrupt }
    assert_within(5, remeasure: 0) { reactor.run }
    thread.join
    refute reactor.closed?
  ensure
    Fiber.set_scheduler(nil)
  end

  # The loop has just asked whether it was interrupted, and has not begun to wait.
  def test_an_interrupt_that_comes_before_the_wait
    reactor = Async::Reactor.new
    reactor.async { sleep }
    asked = false
    reactor.define_singleton_method(:finished?) do
      Thread.new { interrupt }.join unless asked
      asked = true
      super()
    end
    assert_within(5, remeasure: 0) { reactor.run }
    assert asked
    refute reactor.closed?
  ensure
    Fiber.set_scheduler(nil)
  end

  def test_raising_interrupt_stops_the_tasks_firstleaves
    [proc { sleep }, proc { loop { sleep(0) } }, proc { loop { Async::Task.current.yield } }].each do |work|
      events = Thread::Queue.new
      thread = Thread.new do
        Thread.current.report_on_exception = false
        Async do
          events << :started
          work.call
        ensure
          sleep(0.001)
          events << :ensure
        end
      rescue Interrupt
        events << :interrupted
      end
      assert_equal :started, events.pop
      thread.raise(Interrupt)
      assert_within(5, remeasure: 0) { thread.join }
      assert_equal [:ensure, :interrupted], [events.pop, events.pop]
    end
  end

  # As the children of async-container: Thread#raise in a trap is masked by the loop, which must look for it.
  def test_a_trap_that_raises_in_its_thread
    work = {"while the loop waits" => "", "while a task runs" => "until $raised do end"}
    work.each do |moment, busy|
      script = <<~RUBY
        require "heddle/async"
        trap(:TERM) { Thread.current.raise(SignalException, "TERM"); $raised = true }
        Thread.handle_interrupt(SignalException => :immediate) do
          Async do |task|
            task.async { IO.pipe.then { |reader, _writer| reader.read(1) } }
            task.async { $stdout.syswrite("ready\n"); #{busy} }
            sleep(30)
          end
        rescue SignalException => error
          puts error.message
        end
      RUBY
      IO.popen([*RUBY, "-e", script, err: File::NULL], "r") do |child|
        assert_equal "ready\n", child.gets
        wait_until(what: "the loop's wait") { File.read("/proc/#{child.pid}/stat")[/\) (.)/, 1] == "S" } if busy.empty?
        Process.kill("TERM", child.pid)
        ended = child.wait_readable(10) && child.read
        Process.kill("KILL", child.pid) unless ended
        assert_equal "SIGTERM\n", ended, moment
      end
    end
  end

  # Until Ruby 4.0 a child closes its parent's scheduler, which must not run the parent's tasks first.
  def test_a_fork_in_a_task_of_a_scheduler_that_does_not_run
    script = <<~RUBY
      require "heddle/async"
      scheduler = Async::Scheduler.new
      Fiber.set_scheduler(scheduler)
      reader, writer = IO.pipe
      task = scheduler.async do
        child = fork { writer.write("child") }
        other = fork || exit(writer.write("x") + 6)
        writer.close
        print reader.read.delete("x"), Process.wait2(child).last.exitstatus, Process.wait2(other).last.exitstatus
      end
      scheduler.run
    RUBY
    assert_equal "child07", IO.popen([*RUBY, "-e", script, err: %i[child out]], &:read)
  end

  def test_a_fork_without_a_block_ends_with_its_task
    on_heddle do |task|
      status = nil
      task.async do # nobody waits for it: the waiting fiber would be missing in the child
        sleep(0.001)
        pid = fork
        exit(7) unless pid
        status = Process.wait2(pid).last
      end
      sleep(0.001) until status
      assert_equal 7, status.exitstatus
    end
  end

  # ---- memory

  # Minor collections at each allocation, and major ones while tasks wait: with major ones only this takes seconds.
  def test_gc_stress
    on_heddle do |task|
      GC.stress = 1
      queue = Async::Queue.new
      child = task.async { |inner| inner.with_timeout(600) { queue.dequeue } }
      task.async { sleep(0) && GC.start || queue << 1 }
      GC.start
      assert_equal 1, child.wait
      stopped = task.async { sleep }
      GC.start
      stopped.stop
    ensure
      GC.stress = false
    end
  end

  def test_nothing_is_left_of_a_hundred_thousand_tasks
    on_heddle do |task|
      start = lambda do |count|
        count.times { |i| task.async { sleep(0) if i % 10 == 0 } }
        task.yield while Fiber.scheduler.tasks.size > 2
      end
      start.call(10_000)
      GC.start
      before = rss_kib
      # A stale word of the stack may keep what an earlier test made, such as its array of ten thousand tasks.
      objects = -> { [Async::Task, Heddle::Task].map { |klass| ObjectSpace.each_object(klass).count } }
      earlier = objects.call
      start.call(100_000)
      GC.start
      objects.call.zip(earlier) { |now, first| assert_operator now - first, :<, 1000 }
      assert_operator rss_kib - before, :<, 90 << 10 # AddressSanitizer keeps freed memory for a while
    end
  end

  def test_descriptors_are_closed
    Sync {}
    GC.start # closes what other tests left
    before = descriptor_count
    20.times { Sync { |task| task.async { sleep(0) }.wait } }
    20.times { Heddle.run { Async { sleep(0) } } }
    assert_operator descriptor_count, :<=, before
  end
end
