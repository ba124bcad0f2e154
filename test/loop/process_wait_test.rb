# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "open3"

class ProcessWaitTest < Minitest::Test
  include LoopHelpers

  def test_waiting_for_one_child_lets_others_run
    Heddle.run do
      pid = Process.spawn("sleep 0.1; exit 5")
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.005) && ticks += 1 } }
      assert_equal pid, Process.wait(pid)
      assert_equal [pid, 5], [$?.pid, $?.exitstatus]
      assert_operator ticks, :>=, 3
      ticker.cancel
    end
  end

  def test_a_hundred_children_at_once
    Heddle.run do
      statuses = Array.new(100) { |index|
        Heddle.spawn { Process.wait2(Process.spawn("exit #{index}")).last.exitstatus }
      }.map(&:value)
      assert_equal [*0...100], statuses
    end
    assert_no_children
  end

  def test_any_child_in_one_task_while_another_waits_for_its_own
    if Heddle::Scheduler.backends == ["poll"] && !ruby_at_least?("3.3")
      skip "without pidfds threads wait, and Ruby 3.1 loses the one that waits for any child beside one that waits " \
        "for its own"
    end

    Heddle.run do
      gate_reader, gate_writer = IO.pipe
      own = Process.spawn("read line; exit 11", in: gate_reader)
      waiter = Heddle.spawn { Process.wait2(own).last.exitstatus }
      any = Heddle.spawn { Process.wait2(-1) }
      other = Process.spawn("exit 12")
      assert_equal [other, 12], any.value.then { |pid, status| [pid, status.exitstatus] }
      gate_writer.puts
      assert_equal 11, waiter.value
    ensure
      [gate_reader, gate_writer].each(&:close)
    end
    assert_no_children
  end

  def test_a_group
    Heddle.run do
      first = Process.spawn("exit 1", pgroup: true)
      second = Process.spawn("exit 2", pgroup: first)
      outside = Process.spawn("exit 3")
      statuses = Array.new(2) { Process.wait2(-first).last.exitstatus }
      assert_equal [1, 2], statuses.sort
      assert_equal 3, Process.wait2(outside).last.exitstatus
      assert second
    end
  rescue Errno::ESRCH, Errno::EPERM
    retry # the group's leader had ended before the second joined it
  end

  def test_system_backtick_popen_and_open3
    Heddle.run do
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.005) && ticks += 1 } }
      assert_equal true, system("sleep 0.05")
      assert_equal false, system("exit 3")
      assert_equal 3, $?.exitstatus
      assert_nil system("/no/such/program", err: File::NULL)
      assert_equal "hello\n", `echo hello; exit 4`
      assert_equal 4, $?.exitstatus
      assert_equal "piped\n", IO.popen("sleep 0.05; echo piped", &:read)
      assert_predicate $?, :success?
      assert_equal ["IN", "", 6],
        Open3.capture3("tr a-z A-Z; exit 6", stdin_data: "in").then { |out, err, status| [out, err, status.exitstatus] }
      assert_operator ticks, :>=, 3
      ticker.cancel
    end
  end

  def test_programs_in_many_tasks_at_once
    Heddle.run do
      outputs = Array.new(20) { |index| Heddle.spawn { [`echo #{index}`, $?.exitstatus] } }.map(&:value)
      assert_equal Array.new(20) { |index| ["#{index}\n", 0] }, outputs
      assert_equal [true] * 20, Array.new(20) { Heddle.spawn { system("true") } }.map(&:value)
    end
    assert_no_children
  end

  def test_a_signalled_child
    Heddle.run do
      pid = Process.spawn("exec sleep 60")
      waiter = Heddle.spawn { Process.wait2(pid).last }
      Process.kill(:TERM, pid)
      assert_equal Signal.list["TERM"], waiter.value.termsig
    end
  end

  def test_a_child_that_has_ended_already
    Heddle.run do
      pid = Process.spawn("exit 9")
      wait_until { File.read("/proc/#{pid}/stat")[/\) (\S)/, 1] == "Z" }
      assert_equal 9, Process.wait2(pid).last.exitstatus
      assert_raises(Errno::ECHILD) { Process.wait(pid) }
    end
  end

  def test_no_such_child
    Heddle.run do
      assert_raises(Errno::ECHILD) { Process.wait(-1) }
      assert_raises(Errno::ECHILD) { Process.wait(1) }
      assert_raises(Errno::ECHILD) { Process.wait(2**22 - 1) }
      assert_raises(Errno::ECHILD) { Process.wait }
    end
  end

  def test_wnohang_does_not_wait
    Heddle.run do
      pid = Process.spawn("exec sleep 60")
      assert_nil Process.wait(pid, Process::WNOHANG)
      Process.kill(:KILL, pid)
      assert_equal pid, Process.wait(pid)
    end
  end

  def test_a_stopped_child
    Heddle.run do
      pid = Process.spawn("exec sleep 60")
      waiter = Heddle.spawn { Process.wait2(pid, Process::WUNTRACED).last }
      Process.kill(:STOP, pid)
      assert_predicate waiter.value, :stopped?
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
  end

  def test_detach_and_a_wait_that_is_cancelled
    Heddle.run do
      pid = Process.spawn("exec sleep 60")
      waiter = Heddle.spawn { Process.wait(pid) }
      waiter.cancel.wait
      any = Heddle.spawn { Process.wait(-1) }
      any.cancel.wait
      Process.kill(:KILL, pid)
      assert_equal Signal.list["KILL"], Process.detach(pid).value.termsig
    end
    assert_no_children
  end

  def test_two_tasks_and_one_child
    Heddle.run do
      pid = Process.spawn("sleep 0.05; exit 2")
      outcomes = Array.new(2) do
        Heddle.spawn do
          Process.wait2(pid).last.exitstatus
        rescue Errno::ECHILD
          :gone
        end
      end.map(&:value)
      assert_equal [2, :gone], outcomes.sort_by(&:to_s)
    end
  end

  private

  def assert_no_children
    assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }
  end
end
