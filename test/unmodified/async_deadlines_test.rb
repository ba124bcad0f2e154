# frozen_string_literal: true

require "test_helper"
require "support/quiet_async"
require "async/barrier"
require "async/queue"
require "socket"

# Which of Async's tasks a deadline and a filter of Heddle's bind: those that code starts for itself, and none that
# serves others.
class AsyncDeadlinesTest < Minitest::Test
  include QuietAsync

  mode :fiber

  def test_a_task_inherits
    on_heddle do |task|
      refute_nil Heddle.deadline(10) { task.async { Heddle.remaining }.wait }
      refute_nil Heddle.deadline(10) { Async { Heddle.remaining }.wait }
    end
  end

  def test_a_transient_task_inherits_nothing
    assert_outlives_the_deadline { |task, &serving| task.async(transient: true, &serving) }
  end

  def test_what_a_transient_task_starts_inherits_nothing
    assert_outlives_the_deadline do |task, &serving|
      task.async(transient: true) { |driver| driver.async(&serving).wait }
    end
  end

  def test_a_task_that_becomes_transient_is_released
    assert_outlives_the_deadline { |task, &serving| task.async(&serving).tap { |driver| driver.transient = true } }
  end

  def test_a_task_that_makes_itself_transient_is_released
    assert_outlives_the_deadline do |task, &serving|
      task.async do |driver|
        driver.transient = true
        assert_equal 7, Heddle.deadline(7) { Heddle.remaining.ceil }
        serving.call
      end
    end
  end

  def test_fiber_schedule_inherits_nothing
    assert_outlives_the_deadline do |_, &serving|
      started = nil
      Fiber.schedule do
        started = Async::Task.current
        serving.call
      end
      started
    end
  end

  # The start that inherits nothing is one: what it starts in turn, and the next start, inherit as ever.
  def test_fiber_schedule_binds_what_it_starts
    on_heddle do |task|
      inner = nil
      Heddle.deadline(10) do
        Fiber.schedule { inner = Heddle.deadline(5) { task.async { Heddle.remaining }.wait } }
        refute_nil task.async { Heddle.remaining }.wait
      end
      assert_operator inner, :<=, 5
    end
  end

  def test_a_transient_task_inherits_no_filter
    refuse = ->(*) { raise IOError, "refused" }
    server = TCPServer.new("127.0.0.1", 0)
    connect = -> { TCPSocket.new("127.0.0.1", server.local_address.ip_port).close }
    on_heddle do |task|
      Heddle.connect_filter(refuse) do
        assert_raises(Heddle::ConnectRefused) { task.async { connect.call }.wait }
        assert_nil task.async(transient: true) { connect.call }.wait
      end
    end
  ensure
    server&.close
  end

  # ---- Heddle.shield against Async's own stop

  def test_a_shield_holds_against_a_stop
    assert_shielded { |child, _| child.stop }
  end

  def test_a_shield_holds_against_two_stops
    assert_shielded { |child, _| 2.times { child.stop } }
  end

  def test_a_shield_holds_against_the_stop_of_a_barrier
    assert_shielded { |_, barrier| barrier.stop }
  end

  def test_a_shield_holds_against_a_stop_while_another_fiber_of_the_task_waits
    assert_shielded(around: ->(&wait) { Enumerator.new { |y| y << wait.call }.next }) { |child, _| child.stop }
  end

  def test_the_stop_of_a_shielded_task_keeps_its_class_and_cause
    on_heddle do |task|
      gate = Async::Queue.new
      error = nil
      child = task.async do
        Heddle.shield(10) { gate.dequeue }
        sleep
      ensure
        error = $!
      end
      begin
        raise IOError, "the cause"
      rescue IOError
        child.stop
      end
      gate.enqueue(1)
      child.wait
      assert_instance_of Async::Stop, error
      assert_equal "the cause", error.cause.message
      assert_predicate child, :stopped?
    end
  end

  # A shield ends a wait that lasts longer than it, and the stop comes after it.
  def test_a_shield_does_not_hold_for_ever
    on_heddle do |task|
      ends = []
      child = task.async do
        Heddle.shield(0.02) { sleep }
      rescue Heddle::DeadlineExceeded => error
        ends << error.class
        sleep
      ensure
        ends << :ensure
      end
      child.stop
      child.wait
      assert_equal [Heddle::DeadlineExceeded, :ensure], ends
    end
  end

  %w[INT TERM].each do |signal|
    define_method(:"test_a_shield_holds_against_sig#{signal.downcase}") do
      code = <<~RUBY
        require "heddle/async"
        $stdout.sync = true
        Console.logger.off!
        Sync do |task|
          task.async { sleep(0) && puts(:begun) }
          Heddle.shield(10) { sleep(0.2) && puts(:done) }
          sleep && puts(:wrong)
        end
      RUBY
      IO.popen([*RUBY, "-e", code, err: File::NULL]) do |child|
        assert_equal "begun\n", child.gets
        Process.kill(signal, child.pid)
        assert_equal "done\n", child.read
      end
    end
  end

  private

  # The block stops a task that waits inside of a shield.
  def assert_shielded(around: ->(&wait) { wait.call })
    on_heddle do |task|
      barrier = Async::Barrier.new(parent: task)
      gate = Async::Queue.new
      seen = []
      child = barrier.async do
        Heddle.shield(10) { seen << around.call { gate.dequeue } }
        sleep
        seen << :wrong
      ensure
        seen << :ensure
      end
      yield(child, barrier)
      sleep(0)
      assert_empty seen
      gate.enqueue(1)
      child.wait
      assert_equal [1, :ensure], seen
      assert_predicate child, :stopped?
    end
  end

  # The block starts the work of a driver, which it gets as a block, and returns the driver's task. That task still
  # serves when a deadline in force at its start has passed.
  def assert_outlives_the_deadline(&start)
    on_heddle do |task|
      requests = Async::Queue.new
      driver = interrupted = nil
      Heddle.deadline(0.02) do
        driver = start.call(task) { [requests.dequeue, requests.dequeue, Heddle.remaining] }
        interrupted = task.async { sleep }
      end
      assert_raises(Heddle::DeadlineExceeded) { interrupted.wait }
      requests.enqueue(1)
      sleep(0)
      requests.enqueue(2)
      assert_equal [1, 2, nil], driver.wait
    end
  end
end
