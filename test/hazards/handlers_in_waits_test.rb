# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A trap handler runs wherever the main thread checks for interrupts: in the middle of a wait, or of the start of a
# task.
class HandlersInWaitsTest < Minitest::Test
  include LoopHelpers

  # Ruby forgets a wake-up of the thread that comes while its handler runs.
  WAITS = <<~RUBY
    entered = false
    go, started = Thread::Queue.new, Thread::Queue.new
    thread = Thread.new do
      Heddle.run { Heddle.spawn { go.pop }.tap { |task| started << task } }
    end
    task = started.pop
    trap("USR1") do
      entered = true
      sleep(0.001) until task.ended?
    end
    main = Thread.current
    signaller = Thread.new do
      sleep(0.001) until $waiting && main.stop?
      Process.kill("USR1", Process.pid)
      sleep(0.001) until entered
      go << true
    end
  RUBY

  {value: "task.value", wait: "task.wait", wait_with_a_limit: "task.wait(600)"}.each do |name, wait|
    define_method("test_a_wake_up_of_the_main_thread_while_a_handler_runs_by_#{name}") do
      assert_equal "completed\n", assert_child("#{WAITS}\n$waiting = true\n#{wait}\nputs task.status")
    end
  end

  def test_a_wait_in_a_handler
    assert_equal "1\n", assert_child(<<~RUBY)
      go, started, values = Thread::Queue.new, Thread::Queue.new, Thread::Queue.new
      Thread.new { Heddle.run { Heddle.spawn { go.pop }.tap { |task| started << task } } }
      task = started.pop
      trap("USR1") do
        go << 1
        values << task.value
      end
      Process.kill("USR1", Process.pid)
      puts values.pop
    RUBY
  end

  # On the root fiber, whose own wait is parked in the loop: the handler's stops the thread.
  def test_a_deadline_in_a_handler_while_a_run_waits
    assert_equal "Heddle::DeadlineExceeded\n", assert_child(<<~RUBY)
      handled = Thread::Queue.new
      trap("USR1") do
        Heddle.deadline(0.01) { Thread::Queue.new.pop }
      rescue Heddle::DeadlineExceeded => error
        handled << error.class
      end
      main = Thread.current
      Heddle.run do
        Thread.new { (sleep(0.001) until main.stop?) || Process.kill("USR1", Process.pid) }
        puts handled.pop
      end
    RUBY
  end

  # The error of a timeout wakes a fiber, and a wait in the handler raises it: the fiber's own wait goes on.
  {
    sleep: "sleep(0.6)", select: "IO.select([reader], nil, nil, 0.6)", readable: "reader.wait_readable(0.6)",
    join: "other.join(0.6)"
  }.each do |name, wait|
    define_method("test_a_wait_whose_interruption_a_handler_takes_by_#{name}") do
      _answer, lasted = answer_and_seconds(wait)
      assert_operator lasted, :>=, 0.599
    end
  end

  # The same, but the time of the wait is over before the handler ends, which has written meanwhile.
  {select: "IO.select([reader], nil, nil, 0.6)", readable: "reader.wait_readable(0.6)"}.each do |name, wait|
    define_method("test_bytes_that_the_handler_writes_at_its_end_by_#{name}") do
      answer, lasted = answer_and_seconds(wait, at_the_end: "hold.call(600_000); writer << 1")
      refute_equal "nil", answer
      assert_operator lasted, :>=, 0.599
    end
  end

  # Runs the wait in a child process until a timeout's error has woken its fiber and the handler of a signal, which
  # ends by that Ruby code, has taken the error.
  def answer_and_seconds(wait, at_the_end: "")
    output = assert_child(<<~RUBY)
      require "fiddle"
      require "io/wait"
      require "heddle/timeout"
      libc, int = Fiddle::Handle::DEFAULT, Fiddle::TYPE_INT
      hold = Fiddle::Function.new(libc["usleep"], [int], int, need_gvl: true)
      alarm = Fiddle::Function.new(libc["ualarm"], [int, int], int, need_gvl: true)
      now = -> { Heddle::Clock.now }
      Interrupted = Class.new(StandardError)
      handled = waiting = lasted = answer = nil
      main, (reader, writer), other = Thread.current, IO.pipe, Thread.new { sleep }
      trap("ALRM") do
        sleep(0.001)
      rescue Interrupted
        handled = true
        #{at_the_end}
      end
      Fiber.set_scheduler(Heddle::Scheduler.new)
      try = lambda do
        waiting = false
        # While this thread holds the GVL, first the timeout's time is over, and then the signal comes.
        thread = Thread.new do
          sleep(0.001) until waiting && main.stop?
          alarm.call(250_000, 0)
          hold.call(400_000)
        end
        from = now.call
        Timeout.timeout(0.1, Interrupted) do
          waiting = true
          answer = #{wait}
          lasted = now.call - from
        end
      rescue Interrupted
        nil # before the handler ran
      ensure
        thread.join
      end
      20.times { handled || Fiber.new(blocking: false) { try.call }.resume }
      puts handled && answer.inspect, handled && lasted
    RUBY
    answer, lasted = output.lines(chomp: true)
    [answer, Float(lasted)]
  end

  # Ruby checks for interrupts where Fiber#storage returns, which the start of a task on a reused fiber calls.
  def test_a_handler_that_starts_the_last_idle_fiber_in_the_middle_of_a_start
    skip "Ruby has no Fiber#storage" unless Fiber.method_defined?(:storage)

    assert_equal "30 10\n", assert_child(<<~RUBY)
      armed = nil
      handled = []
      trap("USR1") { handled << Heddle.spawn { sleep(0) && 1 } }
      TracePoint.new(:c_return) do |point|
        if armed && point.method_id == :storage
          armed = nil
          Process.kill("USR1", Process.pid)
        end
      end.enable
      values = []
      Heddle.run do
        10.times do |turn|
          values << Heddle.spawn { sleep(0) && 1 }.value
          armed = true
          values << Heddle.spawn { sleep(0) && 1 }.value
          sleep(0.001) until handled.size > turn
          values << handled.last.value
        end
      end
      puts "\#{values.sum} \#{handled.size}"
    RUBY
  end
end
