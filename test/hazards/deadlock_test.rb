# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "minitest/mock"
require "open3"

runs_on backends: :one

# When nothing is left that could wake any task, the run raises instead of hanging.
class DeadlockTest < Minitest::Test
  include LoopHelpers

  # Sends what a child waits for, once it says so.
  def stop_when_told(pid, output)
    {"waits" => :USR1, "told" => :TERM}.each do |line, signal|
      wait_until(what: line) { File.read(output.path).include?(line) }
      Process.kill(signal, pid)
    end
  end

  # In a process of its own: any other thread might wake a task, so there must be none.
  def test_two_tasks_waiting_for_each_others_lock
    out = assert_child(<<~RUBY)
      one, two = Thread::Mutex.new, Thread::Mutex.new
      begin
        Heddle.run do
          Heddle.spawn(name: "left") { one.synchronize { sleep(0.001) && two.synchronize {} } }
          Heddle.spawn(name: "right") { two.synchronize { sleep(0.001) && one.synchronize {} } }
        end
      rescue Heddle::Deadlock => error
        puts error.class, error.message
      end
      puts one.locked?, two.locked?
      puts Heddle.run { sleep(0.001) && :goes_on }
    RUBY
    assert_match(/\AHeddle::Deadlock\n.*"left" +a Thread::Mutex.*"right" +a Thread::Mutex/m, out)
    assert_equal %w[false false goes_on], out.lines(chomp: true).last(3)
  end

  def test_an_empty_queue_that_nobody_fills
    out = assert_child(<<~RUBY)
      begin
        Heddle.run { Heddle.spawn(name: "reader") { Thread::Queue.new.pop }.value }
      rescue Heddle::Deadlock => error
        puts error.message
      end
    RUBY
    assert_match(/"reader".*Queue|"reader"/, out)
    assert_includes out, "deadlock" unless out.include?("to wake these tasks")
  end

  # At first they could wake the task; Heddle.offload keeps its threads for a second.
  {"thread" => "Thread.new { sleep 0.1 }", "offload" => "Heddle.offload { true }"}.each do |name, start|
    define_method(:"test_the_end_of_others_leaves_a_deadlock: #{name}") do
      out = assert_child(<<~RUBY)
        require "heddle/offload"
        begin
          Heddle.run { #{start} and Thread::Queue.new.pop }
        rescue Heddle::Deadlock => error
          puts error.class
        end
      RUBY
      assert_equal "Heddle::Deadlock\n", out
    end
  end

  # A Mutex#sleep without a limit, and methods built on it, waits for another fiber like a Queue does.
  {
    "Mutex#sleep" => "Thread::Mutex.new.then { |mutex| mutex.synchronize { mutex.sleep } }",
    "ConditionVariable#wait" =>
      "Thread::Mutex.new.then { |mutex| mutex.synchronize { Thread::ConditionVariable.new.wait(mutex) } }",
    "a Monitor's condition" => "Monitor.new.then { |monitor| monitor.synchronize { monitor.new_cond.wait } }"
  }.each do |name, wait|
    define_method(:"test_#{name.downcase.gsub(/\W+/, "_")}_that_nobody_ends") do
      out = assert_child(<<~RUBY)
        require "monitor"
        [-> { #{wait} }, -> { Heddle.spawn(name: "sleeper") { #{wait} }.value }].each do |work|
          Heddle.run(&work)
        rescue Heddle::Deadlock => error
          puts error.class, error.message.lines.grep(/sleeper/).any?
        end
      RUBY
      assert_equal %w[Heddle::Deadlock false Heddle::Deadlock true], out.split
    end
  end

  # Ruby lets a plain sleep last, whichever fibers are left; also after another object's Mutex refused to sleep.
  def test_a_sleep_is_no_deadlock
    out = assert_child(<<~RUBY)
      Heddle.run do
        sleeper = Heddle.spawn do
          Thread::Mutex.new.sleep
        rescue ThreadError
          puts "refused"
          sleep
        end
        puts sleeper.waits_for
        sleeper.cancel
      end
    RUBY
    assert_equal "refused\nthe end of a sleep\n", out
  end

  # A signal may be the only thing that wakes the tasks. Afterwards the handlers are the same as before.
  def test_a_signal_handler_may_wake_the_tasks
    out = assert_child(<<~RUBY) { |pid, output| stop_when_told(pid, output) }
      queue = Thread::Queue.new
      trap(:USR1) { queue << :told }
      trap(:TERM) { queue << :stop }
      trap(:INT, "IGNORE")
      Heddle.run do
        puts "waits"
        puts queue.pop
        puts queue.pop
        puts trap(:INT, "DEFAULT"), trap(:TERM, "DEFAULT").class, trap(:USR1, "DEFAULT").class, trap(:HUP, "DEFAULT")
      end
      begin
        Heddle.run { queue.pop }
      rescue Heddle::Deadlock => error
        puts error.class
      end
    RUBY
    assert_equal %w[waits told stop IGNORE Proc Proc DEFAULT Heddle::Deadlock], out.split
  end

  # Its signals come at any moment, also while the run checks for a deadlock. The error that the handler raises must
  # then reach the caller of the run.
  def test_a_handler_that_raises_during_the_deadlock_check
    out = assert_child(<<~RUBY)
      Interrupted = Class.new(StandardError)
      waits = false
      trap(:USR1) do
        raised, waits = waits, false
        raise Interrupted if raised
      end
      parent = Process.pid
      sender = fork { sleep(rand * 0.0005) while Process.ppid == parent && Process.kill(:USR1, parent) }
      400.times do
        waits = true
        Heddle.run { Thread::Queue.new.pop }
      rescue Interrupted
        nil
      end
      Process.kill(:KILL, sender)
      Process.wait(sender)
      puts "interrupted"
    RUBY
    assert_equal "interrupted\n", out
  end

  def test_ensure_blocks_run
    out = assert_child(<<~RUBY)
      begin
        Heddle.run { Heddle.spawn { begin; Thread::Queue.new.pop; ensure; sleep(0.001); puts "ensured"; end } }
      rescue Heddle::Deadlock
        puts "reported"
      end
    RUBY
    assert_equal %w[ensured reported], out.split
  end

  # What may end a wait: a timer, a descriptor, a child, another thread. The check itself lets other threads run.
  def test_an_item_pushed_by_a_thread_during_the_deadlock_check
    queue = Thread::Queue.new
    original = Thread.method(:list)
    looks = 0
    list = lambda do
      threads = original.call
      pusher = Thread.new { queue << :there } if (looks += 1) == 1
      Thread.pass while pusher&.alive?
      threads
    end
    keeper = Thread.new { sleep } # otherwise there would be nothing to wait for
    value = Thread.stub(:list, list) { Heddle.run { Heddle.spawn { queue.pop }.value } }
    assert_equal :there, value
    assert_operator looks, :>, 0
  ensure
    keeper&.kill
  end

  def test_output_of_many_children
    Heddle.run { 200.times { |number| assert_equal "#{number}\n", Open3.capture2e("echo #{number}").first } }
  end

  def test_no_deadlock_while_something_can_wake_a_task
    out = assert_child(<<~'RUBY')
      def passes(name)
        puts "#{name} #{yield}"
      rescue Heddle::Deadlock
        puts "#{name} deadlock"
      end
      queue = Thread::Queue.new
      passes("timer") { Heddle.run { Heddle.spawn { sleep(0.01); queue << 1 }; queue.pop } }
      passes("descriptor") do
        r, w = IO.pipe
        pid = fork { sleep 0.02; w << 2 }
        w.close
        Heddle.run { Heddle.spawn { r.read; queue << 2 }; queue.pop }
      end
      passes("child") do
        Heddle.run { pid = spawn("sleep 0.02"); Heddle.spawn { Process.wait(pid); queue << 3 }; queue.pop }
      end
      passes("thread") { Heddle.run { Thread.new { sleep 0.02; queue << 4 }; queue.pop } }
      passes("name") { Heddle.run { Heddle.spawn { Addrinfo.getaddrinfo("localhost", 80); queue << 5 }; queue.pop } }
      passes("timeout") { require "timeout"; Heddle.run { Timeout.timeout(0.01) { queue.pop } rescue 6 } }
      mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
      wait = -> { mutex.synchronize { condition.wait(mutex) } }
      signal = -> { mutex.synchronize { condition.signal } }
      passes("condition") { Heddle.run { Heddle.spawn { sleep(0.01); signal.call }; wait.call; 7 } }
      passes("thread's condition") { Heddle.run { Thread.new { sleep 0.02; signal.call }; wait.call; 8 } }
      passes("condition with a limit") { Heddle.run { mutex.synchronize { condition.wait(mutex, 0.01) }; 9 } }
      passes("condition within a limit") { Heddle.run { Timeout.timeout(0.01) { wait.call } rescue 10 } }
      passes("sleep") { Heddle.run { Timeout.timeout(0.01) { sleep } rescue 11 } }
      passes("sleep that a task ends") { Heddle.run { Heddle.spawn { sleep }.cancel; 12 } }
    RUBY
    assert_equal ["timer 1", "descriptor 2", "child 3", "thread 4", "name 5", "timeout 6", "condition 7",
      "thread's condition 8", "condition with a limit 9", "condition within a limit 10", "sleep 11",
      "sleep that a task ends 12"], out.lines(chomp: true)
  end
end
