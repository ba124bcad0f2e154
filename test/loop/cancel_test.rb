# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit]

class CancelTest < Minitest::Test
  include LoopHelpers

  # A collection at every allocation: a full one for some of the tasks, the faster minor one (1) for the others. In a
  # process of its own, whose heap is small; ten tasks at a time, since each collection scans the stacks of all that
  # wait.
  def test_a_thousand_tasks_cancelled_in_mid_read_under_gc_stress
    assert_equal "1000 1000\n", assert_child(<<~'RUBY', timeout: 50)
      ensured = intact = 0
      Heddle.run do
        100.times do |turn|
          ends = Array.new(10) { UNIXSocket.pair }
          tasks = ends.map do |reader, _|
            Heddle.spawn do
              reader.readpartial(10)
            ensure
              ensured += 1
            end
          end
          if turn % 10 == 0
            GC.stress = true
            tasks.first.cancel
          end
          GC.stress = 1
          tasks.each(&:cancel)
          sleep(0)
          GC.stress = false
          tasks.each(&:wait)
          abort "#{tasks.map(&:status)}" unless tasks.all? { |task| task.status == :cancelled }
          ends.each { |_, writer| writer.write("x") }
          intact += ends.map { |reader, _| Heddle.spawn { reader.readpartial(1) } }.count { |task| task.value == "x" }
          ends.flatten.each(&:close)
        end
      end
      puts "#{ensured} #{intact}"
    RUBY
  end

  def test_a_thousand_tasks_cancelled_at_once
    with_descriptors(2_300, least: 1_100) do |limit|
      ends = Array.new([1000, (limit - 100) / 2].min) { UNIXSocket.pair }
      Heddle.run do
        tasks = ends.map { |reader, _| Heddle.spawn { reader.readpartial(10) } }
        tasks.each_slice(100) do |some|
          some.each(&:cancel)
          GC.start
          sleep(0)
        end
        tasks.each(&:wait)
        assert_equal [:cancelled], tasks.map(&:status).uniq
        ends.each { |_, writer| writer.write("x") }
        assert_equal ["x"], ends.map { |reader, _| Heddle.spawn { reader.readpartial(1) } }.map(&:value).uniq
      end
    ensure
      ends&.flatten&.each(&:close)
    end
  end

  def test_every_kind_of_wait_can_be_cancelled
    locked = Thread::Mutex.new
    gate = Thread::Queue.new
    thread = Thread.new { gate.pop }
    with_pair do |reader, writer|
      full = -> { loop { writer.write_nonblock("x" * 65_536) } }
      assert_raises(IO::EAGAINWaitWritable, &full)
      pid = Process.spawn("exec sleep 60")
      Heddle.run do
        locked.lock
        waits = {
          sleep: -> { sleep },
          timed_sleep: -> { sleep(100) },
          read: -> { writer.read(1) },
          write: -> { writer.write("x") },
          wait_readable: -> { writer.wait_readable(100) },
          select: -> { IO.select([writer], nil, nil, 100) },
          select_without_end: -> { IO.select([writer]) },
          mutex: -> { locked.lock },
          queue: -> { Thread::Queue.new.pop },
          sized_queue: -> { (Thread::SizedQueue.new(1) << 1) << 2 },
          join: -> { thread.join },
          timed_join: -> { thread.join(100) },
          process: -> { Process.wait(pid) },
          value: -> { Heddle.spawn { sleep(0.2) }.value },
          task_wait: -> { Heddle.spawn { sleep(0.2) }.wait(100) },
          timeout: -> { Timeout.timeout(100) { sleep } },
          nested_run: -> { Heddle.run { sleep } },
          nested_fiber: -> { Fiber.new { sleep }.resume },
          pool: -> { Heddle::FiberPool.new(1).map([1]) { sleep } },
          yielding: -> { loop { sleep(0) } },
          ready_reads: -> { File.open("/dev/zero") { |zero| loop { zero.readpartial(1) } } }
        }
        waits.each do |name, wait|
          ensured = false
          task = Heddle.spawn(name: name) do
            wait.call
          ensure
            ensured = true
          end
          refute_predicate task, :ended?, name
          assert_same task, task.cancel
          assert task.wait(5), "#{name} was not cancelled"
          assert_equal [:cancelled, true], [task.status, ensured], name
        end
        wait_until(what: "the end of the tasks that were waited for") { Fiber.scheduler.statistics[:timers] <= 1 }
      ensure
        locked.unlock
        Process.kill(:KILL, pid)
        Process.wait(pid)
        gate << 1
      end
    end
    thread.join
  end

  def test_clean_up_may_wait
    Heddle.run do
      steps = []
      task = Heddle.spawn do
        sleep
      ensure
        steps << :started
        sleep(0.01)
        with_pair { |reader, writer| writer.write("x") && reader.readpartial(1) }
        steps << :ended
      end
      task.cancel
      assert_equal [], steps
      task.wait
      assert_equal [%i[started ended], :cancelled], [steps, task.status]
    end
  end

  def test_cancelling_twice_raises_once
    Heddle.run do
      raised = 0
      task = Heddle.spawn do
        sleep
      rescue Heddle::Cancellation
        raised += 1
        sleep(0.01)
        raise
      end
      task.cancel.cancel
      sleep(0)
      task.cancel
      task.wait
      assert_equal [1, :cancelled], [raised, task.status]
    end
  end

  def test_a_swallowed_cancellation_lets_the_task_continue
    Heddle.run do
      task = Heddle.spawn do
        sleep
      rescue Heddle::Cancellation
        sleep(0.001)
        :survived
      end
      assert_equal :survived, task.cancel.value
      assert_equal :completed, task.status
    end
  end

  def test_a_rescue_of_standard_error_does_not_catch_a_cancellation
    Heddle.run do
      task = Heddle.spawn do
        sleep
      rescue => error
        flunk "rescued #{error.inspect}"
      end
      assert_equal :cancelled, task.cancel.wait.status
    end
  end

  def test_an_error_in_clean_up_is_kept_and_reported
    _out, report = capture_io do
      Heddle.run do
        task = Heddle.spawn do
          sleep
        ensure
          raise IOError, "in clean-up"
        end
        assert_equal [:cancelled, "in clean-up"], [task.cancel.wait.status, task.error.message]
      end
    end
    assert_includes report, "in clean-up"
  end

  # As amqp-client does around its handshake. The run must not raise what the program asked for.
  def test_a_library_that_turns_the_cancellation_into_its_own_error
    wrap = lambda do |&wait|
      wait.call
    rescue Exception # rubocop:disable Lint/RescueException
      begin
        raise IOError, "the library's"
      rescue IOError
        raise SystemCallError, "an outer library's"
      end
    end
    capture_io do
      Heddle.run do
        task = Heddle.spawn { wrap.call { sleep } }
        assert_equal [:cancelled, SystemCallError], [task.cancel.wait.status, task.error.class]
        assert_equal task.error, assert_raises(Heddle::TaskCancelled) { task.value }.cause
      end
    end
  end

  def test_a_library_that_turns_the_cancellation_of_a_runs_block
    error = assert_raises(Heddle::TaskCancelled) do
      Heddle.run do
        task = Heddle::Task.current
        Heddle.spawn { task.cancel }
        begin
          sleep
        rescue Heddle::Cancellation
          raise IOError, "the library's"
        end
      end
    end
    assert_equal "the library's", error.cause.message
  end

  def test_an_exit_in_clean_up_ends_the_run
    assert_raises(SystemExit) do
      Heddle.run do
        task = Heddle.spawn do
          sleep
        ensure
          exit(3)
        end
        task.cancel.wait
        sleep
      end
    end
  end

  # Its error has nothing to do with the cancel, from which it went on.
  def test_a_task_that_fails_after_a_swallowed_cancellation
    Heddle.run do
      task = Heddle.spawn do
        begin
          sleep
        rescue Heddle::Cancellation
          nil
        end
        sleep(0)
        raise IOError, "later"
      end
      task.cancel
      assert_raises(IOError) { task.value }
      assert_equal :failed, task.status
    end
  end

  def test_a_task_that_cancels_itself
    Heddle.run do
      task = Heddle.spawn do
        Heddle::Task.current.cancel
        flunk "it continued"
      end
      assert_equal :cancelled, task.status
    end
  end

  def test_a_running_task_is_cancelled_at_its_next_wait
    Heddle.run do
      victim = reached = nil
      victim = Heddle.spawn do
        sleep(0)
        Heddle.spawn { victim.cancel }
        reached = :code
        sleep(0)
        reached = :past_the_wait
      end
      victim.wait
      assert_equal [:cancelled, :code], [victim.status, reached]
    end
  end

  def test_cancelling_a_task_that_has_ended_does_nothing
    Heddle.run do
      done = Heddle.spawn { 1 }
      assert_equal 1, done.cancel.value
      cancelled = Heddle.spawn { sleep }.cancel.wait
      assert_equal :cancelled, cancelled.cancel.status
    end
  end

  def test_cancelling_from_another_thread
    started = Thread::Queue.new
    runner = Thread.new do
      Heddle.run do
        task = Heddle.spawn { sleep }
        started << task
        task.wait
        task.status
      end
    end
    task = started.pop
    wait_until { runner.status == "sleep" }
    task.cancel
    assert_equal :cancelled, runner.value
  end

  def test_a_byte_that_arrived_before_the_cancel_is_not_lost
    with_pair do |reader, writer|
      Heddle.run do
        task = Heddle.spawn { reader.readpartial(10) }
        writer.write("byte")
        task.cancel.wait
        received = (task.status == :completed) ? task.value : reader.readpartial(10)
        assert_equal "byte", received
      end
    end
  end

  def test_cancelled_tasks_do_not_stop_the_others
    with_pair do |reader, writer|
      Heddle.run do
        tasks = Array.new(100) { |index| Heddle.spawn { index.even? ? sleep : sleep(0.02) && index } }
        echo = Heddle.spawn { reader.readpartial(4) }
        tasks.each_with_index { |task, index| task.cancel if index.even? }
        writer.write("here")
        assert_equal "here", echo.value
        assert_equal [*0...100].select(&:odd?), tasks.each_slice(2).map { |_, odd| odd.value }
      end
    end
  end
end
