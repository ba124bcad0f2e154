# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/barrier"
require "async/semaphore"
require "async/condition"
require "async/queue"
require "socket"

# Many tasks of Async's on Heddle's loop that are interrupted at once: by stops, timeouts, deadlines, closes, threads
# and signals, with the garbage collector beside them. What both loops can do is also run on Async's own.
class AsyncInterruptionsTest < Minitest::Test
  include QuietAsync

  mode :fiber

  # The close that follows the signal lets the first wait of an `ensure` end, as on Async's own loop.
  def test_an_ensure_waits_once_after_sigterm
    code = <<~RUBY
      require "heddle/async"
      $stdout.sync = true
      Sync do |task|
        task.async { sleep(0) && puts(:begun) }
        sleep
      ensure
        sleep(0.2)
        puts :cleaned
      end
    RUBY
    5.times do
      IO.popen([*RUBY, "-e", code, err: File::NULL]) do |child|
        assert_equal "begun\n", child.gets
        Process.kill(:TERM, child.pid)
        assert_equal "cleaned\n", child.read
      end
    end
  end

  # Each kind of wait is stopped after each number of turns, and again while its `ensure` waits. Async's own loop does
  # not end all of them on Ruby 3.1.
  def test_stop_in_each_wait
    on_heddle do |task|
      waits(task).each do |name, wait|
        4.times { |turns| assert_stopped(task, name, turns, wait) }
      end
    end
  end

  AsyncLoops::ALL.each do |loop|
    define_method(:"test_stop_of_a_tree_#{loop}") do
      AsyncLoops.run(loop) do |task|
        ended = []
        root = task.async { |top| tree(top, 4, ended) }
        sleep(0.002)
        root.stop
        wait_until(what: "the end of all tasks") { ended.size == 31 }
        assert_equal 31, ended.uniq.size
        assert_predicate root, :stopped?
      end
    end

    define_method(:"test_errors_in_ensure_of_many_#{loop}") do
      AsyncLoops.run(loop) do |task|
        children = Array.new(300) do |i|
          task.async do
            sleep
          ensure
            sleep(0.001)
            raise IOError, i.to_s if i.odd?
          end
        end
        children.each(&:stop)
        children.each_with_index do |child, i|
          error = assert_raises(IOError, i.to_s) { child.wait } if i.odd?
          child.wait if i.even?
          assert_equal i.to_s, error.message if error
          assert_equal i.odd?, child.failed?
        end
      end
    end
  end

  # Async's own loop leaves the readers waiting on Ruby 3.1.
  def test_close_while_tasks_wait
    on_heddle do |task|
      pairs = Array.new(100) { UNIXSocket.pair }
      readers = pairs.map do |here, _|
        task.async do
          here.read(1)
        rescue IOError
          :closed
        end
      end
      sleep(0.001)
      half = pairs.each_slice(50).first
      half.each { |here, _| here.close }
      Thread.new { (pairs - half).each { |_, there| there.close } }.join
      half.size.times { |i| assert_equal :closed, assert_within(5, remeasure: 0) { readers[i].wait } }
      readers.drop(half.size).each { |reader| assert_nil assert_within(5, remeasure: 0) { reader.wait } }
      pairs.flatten.each(&:close)
    end
  end

  # ---- timeouts of Async's and deadlines of Heddle's

  def test_the_earlier_of_a_timeout_and_a_deadline
    on_heddle do |task|
      assert_raises(Async::TimeoutError) { Heddle.deadline(10) { task.with_timeout(0.002) { sleep } } }
      assert_raises(Heddle::DeadlineExceeded) { task.with_timeout(10) { Heddle.deadline(0.002) { sleep } } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.002) { task.with_timeout(10) { sleep } } }
      assert_raises(Async::TimeoutError) { task.with_timeout(0.002) { Heddle.deadline(10) { sleep } } }
      assert_equal :both_left, task.with_timeout(60) { Heddle.deadline(60) { sleep(0) && :both_left } }
    end
  end

  def test_many_nested_timeouts_and_deadlines_in_nested_tasks
    on_heddle do |task|
      outcomes = Array.new(400) do |i|
        task.async do |outer|
          limit = 0.002 + i % 5 * 0.001
          if i.even?
            Heddle.deadline(limit) { outer.async { |inner| inner.with_timeout(10) { sleep } }.wait }
          else
            outer.with_timeout(limit) { Heddle.deadline(10) { outer.async { sleep(0) }.wait && sleep } }
          end
        rescue Heddle::DeadlineExceeded, Async::TimeoutError => error
          error.class
        end
      end
      expected = Array.new(400) { |i| i.even? ? Heddle::DeadlineExceeded : Async::TimeoutError }
      assert_equal expected, outcomes.map(&:wait)
      # Beside load an inner task may end after its outer one, whose timeout came first.
      wait_until { Fiber.scheduler.statistics[:timers].zero? }
    end
  end

  # Code that rescues a timeout and tries again ends with the deadline, not with its tries.
  def test_a_deadline_outlasts_retries
    on_heddle do |task|
      tries = 0
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.02) do
          1000.times do
            task.with_timeout(0.005) { sleep }
          rescue Async::TimeoutError
            tries += 1
          end
        end
      end
      assert_operator tries, :<=, 10
    end
  end

  def test_a_shield_in_a_stopped_task
    on_heddle do |task|
      events = []
      child = task.async do
        Heddle.deadline(0.002) { sleep }
      ensure
        Heddle.shield(60) { sleep(0.002) && events << :shielded }
      end
      assert_raises(Heddle::DeadlineExceeded) { child.wait }
      stopped = task.async do
        sleep
      ensure
        Heddle.shield(60) { sleep(0.002) && events << :stopped }
      end
      stopped.stop
      stopped.wait
      assert_equal %i[shielded stopped], events
    end
  end

  # ---- threads, signals, forks

  def test_wake_ups_of_many_tasks_by_many_threads
    on_heddle do |task|
      queues = Array.new(200) { Thread::Queue.new }
      waiting = queues.map { |queue| task.async { Array.new(10) { queue.pop }.sum } }
      threads = queues.each_slice(50).map do |some|
        Thread.new { 10.times { |i| some.shuffle.each { |queue| queue << i } } }
      end
      assert_equal [45] * 200, waiting.map(&:wait)
      threads.each(&:join)
    end
  end

  def test_stops_race_with_wake_ups_from_threads
    on_heddle do |task|
      200.times do
        queue = Thread::Queue.new
        woken = task.async { queue.pop }
        thread = Thread.new { queue << :value }
        woken.stop
        woken.wait
        thread.join
        assert_equal :value, queue.pop if woken.result != :value
      end
    end
  end

  def test_a_signal_stops_hundreds_of_tasks
    out = signalled(<<~'RUBY')
      require "heddle/async"
      require "socket"
      ended = 0
      begin
        Async do |task|
          pairs = Array.new(100) { UNIXSocket.pair }
          tasks = Array.new(300) do |i|
            task.async do |child|
              case i % 3
              when 0 then child.with_timeout(60) { pairs[i / 3][0].read(1) }
              when 1 then loop { sleep(0.0005) }
              when 2 then Thread::Queue.new.pop
              end
            ensure
              sleep(0.001)
              ended += 1
            end
          end
          $stdout.syswrite("ready\n") # Ruby 4.0 writes a buffer twice if a signal comes after the write
          tasks.each(&:wait)
        end
      ensure
        $stdout.syswrite("#{$!.class}, #{ended} ended\n")
      end
    RUBY
    assert_equal "Interrupt, 300 ended\n", out
    assert_equal Signal.list["INT"], $?.termsig || $?.exitstatus - 128
  end

  # A handler that wakes a task, from wherever the loop is.
  def test_signal_handlers_wake_tasks
    old = nil
    on_heddle do |task|
      hits = Thread::Queue.new
      old ||= trap("USR1") { hits << true }
      trap("USR1") { hits << true }
      busy = task.async { loop { sleep(0) } }
      heard = task.async { 50.times { Process.kill(:USR1, Process.pid) && hits.pop } && :heard }
      assert_equal :heard, assert_within(20, remeasure: 0) { heard.wait }
      busy.stop
    end
  ensure
    trap("USR1", old) if old
  end

  def test_forks_beside_hundreds_of_waiting_tasks
    on_heddle do |task|
      pairs = Array.new(100) { UNIXSocket.pair }
      reading = pairs.map { |here, _| task.async { |child| child.with_timeout(60) { here.read(1) } } }
      statuses = Array.new(3) do |i|
        task.async do
          pid = fork do
            exit!(Thread.new { Sync { |inner| Array.new(10) { inner.async { sleep(0.001) && i } }.sum(&:wait) } }.value)
          end
          Process.wait2(pid).last.exitstatus
        end
      end
      assert_equal [0, 10, 20], statuses.map(&:wait)
      pairs.each { |_, there| there.write("x") }
      assert_equal ["x"] * 100, reading.map(&:wait)
      pairs.flatten.each(&:close)
    end
  end

  # ---- memory

  def test_compaction_while_tasks_wait
    skip "this Ruby does not compact" unless GC.respond_to?(:compact)
    on_heddle do |task|
      condition = Async::Condition.new
      children = Array.new(200) { |i| task.async { |child| child.with_timeout(60) { "#{condition.wait} #{i}" } } }
      GC.compact
      condition.signal("woken")
      assert_equal Array.new(200) { |i| "woken #{i}" }, children.map(&:wait)
    end
  end

  # Tasks that end otherwise than by their last line.
  def test_nothing_is_left_of_interrupted_tasks
    on_heddle do |task|
      interrupt = lambda do |count|
        count.times do |i|
          case i % 3
          when 0 then task.async { sleep }.stop
          when 1 then task.async { raise IOError, "failed" }
          when 2 then begin
            Heddle.deadline(0) { task.async { sleep }.wait }
          rescue Heddle::DeadlineExceeded
            nil
          end
          end
        end
        task.yield while Fiber.scheduler.tasks.size > 2
      end
      interrupt.call(2000)
      GC.start
      before = rss_kib
      interrupt.call(9000)
      GC.start
      assert_operator ObjectSpace.each_object(Async::Task).count, :<, 1000
      assert_operator ObjectSpace.each_object(Heddle::Task).count, :<, 1000
      assert_equal 0, Fiber.scheduler.statistics[:timers]
      assert_operator rss_kib - before, :<, 60 << 10
    end
  end

  private

  # Waits without an end, by name.
  def waits(task)
    here, = @pair = UNIXSocket.pair
    locked = Async::Semaphore.new(1).tap(&:acquire)
    {
      sleep: proc { sleep },
      read: proc { here.read(1) },
      select: proc { IO.select([here]) },
      condition: proc { Async::Condition.new.wait },
      queue: proc { Async::Queue.new.dequeue },
      full: proc { Async::LimitedQueue.new(1).then { |queue| 2.times { queue.enqueue(1) } } },
      thread_queue: proc { Thread::Queue.new.pop },
      semaphore: proc { locked.acquire },
      barrier: proc { |child| Async::Barrier.new(parent: child).tap { |all| all.async { sleep } }.wait },
      task: proc { |child| child.async { sleep }.wait },
      timeout: proc { |child| child.with_timeout(60) { sleep } },
      thread: proc { Thread.new { sleep 0.001 }.join && sleep },
      process: proc { Process.wait(Process.spawn("sleep 60", pgroup: true).tap { |pid| (@children ||= []) << pid }) }
    }
  end

  def assert_stopped(task, name, turns, wait)
    events = []
    child = task.async do |inner|
      wait.call(inner)
      events << :went_on
    rescue Async::Stop
      events << :stopped
      raise
    ensure
      task.yield
      events << :ensure
    end
    turns.times { task.yield }
    child.stop
    child.stop if turns == 3 # while its `ensure` waits
    assert_within(5, remeasure: 0) { child.wait }
    assert_equal((turns == 3) ? [:stopped] : [:stopped, :ensure], events, name)
    @children&.each { |pid| Process.kill(:KILL, pid) && Process.wait(pid) }
    @children = nil
  end

  def tree(task, depth, ended)
    Array.new(depth.zero? ? 0 : 2) { task.async { |child| tree(child, depth - 1, ended) } }
    sleep
  ensure
    sleep(0.0005)
    ended << task
  end

  # What the program says after an INT that follows its first line.
  def signalled(script)
    IO.popen([*RUBY, "-e", script, err: File::NULL], "r") do |child|
      assert_equal "ready\n", child.gets
      Process.kill("INT", child.pid)
      child.read
    end
  end
end
