# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit poll]

# Signals, Thread#raise and Thread#kill that arrive while the loop polls go to the caller of the outermost run, which
# ends its tasks in order; never to the task whose wait polled.
class InterruptsTest < Minitest::Test
  include LoopHelpers

  # Three tasks that wait in different ways, one of which cleans up slowly.
  TASKS = <<~'RUBY'
    $seen = []
    reader, $writer = UNIXSocket.pair
    watch = lambda do |name, &wait|
      Heddle.spawn(name: name) do
        wait.call
      rescue Exception => error
        $seen << "#{name}:#{error.class}"
        raise
      ensure
        sleep(0.02) if name == "slow"
        $seen << "#{name}:ensured"
      end
    end
    start = lambda do
      watch.call("sleeper") { sleep }
      watch.call("reader") { reader.readpartial(1) }
      watch.call("slow") { Thread::Queue.new.pop }
    end
  RUBY
  ENSURED = %w[
    reader:Heddle::Cancellation reader:ensured sleeper:Heddle::Cancellation sleeper:ensured slow:Heddle::Cancellation
    slow:ensured
  ].freeze

  def test_sigint_ends_the_run_in_order
    out = assert_child(<<~RUBY, &signal_at("ready", :INT))
      #{TASKS}
      begin
        Heddle.run { start.call; puts "ready"; sleep }
        puts "continued"
      rescue Interrupt => error
        puts error.class, $seen.sort
      end
    RUBY
    assert_equal ["ready", "Interrupt", *ENSURED], out.split
  end

  def test_sigint_while_the_block_has_ended_and_tasks_are_awaited
    out = assert_child(<<~RUBY, &signal_at("ready", :INT))
      #{TASKS}
      begin
        Heddle.run { start.call; puts "ready" }
      rescue Interrupt => error
        puts error.class, $seen.sort
      end
    RUBY
    assert_equal ["ready", "Interrupt", *ENSURED], out.split
  end

  def test_sigterm_ends_the_run_in_order_and_the_process_by_the_signal
    outcome = in_child(<<~RUBY, &signal_at("ready", :TERM))
      #{TASKS}
      at_exit { puts $seen.sort }
      Heddle.run { start.call; puts "ready"; sleep }
    RUBY
    assert_equal ["ready", *ENSURED], outcome.out.split
    assert_equal Signal.list["TERM"], outcome.status.termsig
  end

  def test_sigterm_under_a_plain_scheduler
    outcome = in_child(<<~RUBY, &signal_at("ready", :TERM))
      #{TASKS}
      at_exit { puts $seen.sort }
      Fiber.set_scheduler(Heddle::Scheduler.new)
      start.call
      puts "ready"
      Fiber.scheduler.close # as at the end of the thread, but where its outcome can be seen
    RUBY
    assert_equal ["ready", *ENSURED], outcome.out.split
    assert_equal Signal.list["TERM"], outcome.status.termsig
  end

  # Here Ruby closes the scheduler, after the signal.
  def test_sigterm_under_a_plain_scheduler_before_it_is_closed
    outcome = in_child(<<~RUBY)
      #{TASKS}
      at_exit { puts $seen.sort }
      Fiber.set_scheduler(Heddle::Scheduler.new)
      start.call
      Process.kill(:TERM, $$)
      Thread.pass
      puts "continued"
    RUBY
    assert_equal ENSURED, outcome.out.split
    assert_equal Signal.list["TERM"], outcome.status.termsig
  end

  def test_a_second_sigint_during_slow_clean_up_ends_that_too
    out = assert_child(<<~RUBY, timeout: 15) do |pid, file|
      steps = []
      begin
        Heddle.run do
          Heddle.spawn do
            sleep
          ensure
            begin
              puts "cleaning"
              sleep
            ensure
              steps << "ended"
            end
          end
          puts "ready"
          sleep
        end
      rescue Interrupt
        puts steps
      end
    RUBY
      wait_until { File.read(file.path).include?("ready\n") }
      Process.kill(:INT, pid)
      wait_until { File.read(file.path).include?("cleaning\n") }
      Process.kill(:INT, pid)
    end
    assert_equal %w[ready cleaning ended], out.split
  end

  def test_a_trap_handler_runs_and_the_tasks_continue
    out = assert_child(<<~RUBY, &signal_at("ready", :USR1))
      Heddle.run do
        queue = Thread::Queue.new
        trap("USR1") { queue << "trapped" }
        sleeper = Heddle.spawn { sleep(0.05) && "slept" }
        popper = Heddle.spawn { queue.pop }
        puts "ready"
        puts popper.value, sleeper.value
      end
    RUBY
    assert_equal %w[ready trapped slept], out.split
  end

  # Ruby itself delivers a signal to a task that computes.
  def test_sigint_in_running_ruby_code
    out = assert_child(<<~RUBY, &signal_at("ready", :INT))
      #{TASKS}
      begin
        Heddle.run do
          start.call
          puts "ready"
          loop {}
        end
      rescue Interrupt
        puts $seen.sort
      end
    RUBY
    assert_equal ["ready", *ENSURED], out.split
  end

  def test_sigint_in_a_task_that_computes
    out = assert_child(<<~RUBY, &signal_at("ready", :INT))
      #{TASKS}
      begin
        Heddle.run do
          start.call
          Heddle.spawn { sleep(0); puts "ready"; loop {} }
          sleep
        end
      rescue Interrupt
        puts $seen.sort
      end
    RUBY
    assert_equal ["ready", *ENSURED], out.split
  end

  def test_thread_raise_comes_to_the_caller_of_run
    seen = []
    thread, = running_thread(seen)
    thread.raise(IOError, "from outside")
    assert_equal "from outside", assert_raises(IOError) { thread.value }.message
    assert_equal %i[a_cancelled b_cancelled], seen.sort
  end

  def test_thread_kill_ends_the_tasks_in_order
    seen = []
    thread, = running_thread(seen)
    thread.kill
    assert thread.join(stretched(10)), "the thread did not end"
    assert_nil thread.value
    assert_equal %i[a_cancelled b_cancelled], seen.sort
  end

  def test_thread_raise_beside_a_busy_task
    seen = []
    turns = 0
    thread, = running_thread(seen) { loop { sleep(0) && turns += 1 } }
    Thread.pass until turns > 100
    thread.raise(IOError, "from outside")
    assert_equal "from outside", assert_raises(IOError) { thread.value }.message
    assert_equal %i[a_cancelled b_cancelled], seen.sort
  end

  # A pool has its own fiber, which waits for work from other threads and belongs to no task.
  def test_sigint_with_a_pool_in_the_run
    out = assert_child(<<~RUBY, &signal_at("ready", :INT))
      #{TASKS}
      begin
        Heddle.run do
          pool = Heddle::FiberPool.new(2)
          start.call
          Thread.new { pool.spawn { 1 }.value }.join
          pool.spawn do
            puts "ready"
            sleep
          ensure
            $seen << "pooled"
          end
          sleep
        end
      rescue Interrupt => error
        puts error.class, $seen.sort
      end
    RUBY
    assert_equal ["ready", "Interrupt", "pooled", *ENSURED], out.split
  end

  def test_thread_wakeup_disturbs_no_task
    queue = Thread::Queue.new
    thread = Thread.new { Heddle.run { Heddle.spawn { queue.pop }.value } }
    wait_until { thread.status == "sleep" }
    thread.wakeup
    thread.run
    queue << :value
    assert_equal :value, thread.value
  end

  # A run inside a task: the interrupt goes to the outermost.
  def test_thread_raise_with_nested_runs
    steps = Thread::Queue.new
    thread = Thread.new do
      Heddle.run do
        Heddle.run { Heddle.spawn { sleep } && sleep }
      ensure
        steps << Heddle::Task.current.status
      end
    end
    thread.report_on_exception = false
    wait_until { thread.status == "sleep" }
    thread.raise(IOError, "from outside")
    assert_raises(IOError) { thread.value }
    assert_equal :running, steps.pop
  end

  def test_a_timeout_around_a_run_ends_it
    seen = []
    error = assert_raises(Timeout::Error) do
      Timeout.timeout(0.05) do
        Heddle.run do
          Heddle.spawn do
            sleep
          ensure
            seen << :ensured
          end
          sleep
        end
      end
    end
    assert_kind_of Timeout::Error, error
    assert_equal [:ensured], seen
  end

  private

  def running_thread(seen, &busy)
    waiting = Thread::Queue.new
    thread = Thread.new do
      Heddle.run do
        %i[a b].each do |name|
          Heddle.spawn do
            (name == :a) ? sleep : Thread::Queue.new.pop
          rescue Heddle::Cancellation
            seen << :"#{name}_cancelled"
            raise
          end
        end
        waiting << true
        busy ? busy.call : sleep
      end
    end
    thread.report_on_exception = false
    waiting.pop
    wait_until { thread.status == "sleep" } unless busy
    [thread]
  end
end
