# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "open3"
require "timeout"

# Child processes beside tasks: only their own task awaits them, they are reaped once, and they never disturb the
# others.
class ChildProcessesTest < Minitest::Test
  include LoopHelpers

  def test_system_backtick_popen_open3_and_spawn_park_their_own_fiber
    Heddle.run do
      ticks = 0
      ticker = Heddle.spawn { loop { sleep(0.002) && ticks += 1 } }
      tasks = [
        Heddle.spawn { system("sleep 0.05; exit 3") || $?.exitstatus },
        Heddle.spawn { `sleep 0.05; echo backtick` },
        Heddle.spawn { IO.popen("sleep 0.05; echo popen", &:read) },
        Heddle.spawn { Open3.capture3("sleep 0.05; cat; echo error >&2", stdin_data: "input") },
        Heddle.spawn { Process.wait2(Process.spawn("sleep 0.05; exit 4")).last.exitstatus }
      ]
      values = tasks.map(&:value)
      assert_equal [3, "backtick\n", "popen\n", ["input", "error\n"], 4], values.tap { |all| all[3] = all[3].first(2) }
      assert_operator ticks, :>=, 5, "the others stood still"
      ticker.cancel
    end
  end

  def test_two_hundred_children_at_once
    Heddle.run do
      go, release = IO.pipe
      statuses = Array.new(200) do |index|
        pid = fork do
          release.close
          go.read
          exit!(index % 256)
        end
        Heddle.spawn { Process.wait2(pid).last.exitstatus }
      end
      go.close
      release.close
      assert_equal Array.new(200) { |index| index % 256 }, statuses.map(&:value)
    end
    assert_raises(Errno::ECHILD) { Process.wait }
  end

  def test_a_storm_of_sigchld_while_tasks_wait
    seen = 0
    before = trap("CHLD") { seen += 1 }
    Heddle.run do
      with_pair do |reader, writer|
        waiter = Heddle.spawn { reader.readpartial(10) }
        sleeper = Heddle.spawn { sleep(0.05) && :slept }
        children = Array.new(50) { fork { exit!(0) } }
        tasks = children.map { |pid| Heddle.spawn { Process.wait2(pid).last } }
        assert tasks.map(&:value).all?(&:success?)
        writer.write("x")
        assert_equal ["x", :slept], [waiter.value, sleeper.value]
      end
    end
    assert_operator seen, :>=, 1
  ensure
    trap("CHLD", before || "DEFAULT")
  end

  def test_a_child_that_another_task_has_not_asked_for_is_left_to_its_parent
    pid = fork { exit!(5) }
    Heddle.run do
      other = fork { exit!(6) }
      assert_equal 6, Process.wait2(other).last.exitstatus
    end
    assert_equal 5, Process.wait2(pid).last.exitstatus
  end

  def test_any_child
    Heddle.run do
      pids = Array.new(3) { fork { exit!(0) } }
      ticker = Heddle.spawn { sleep(0.001) && :ran }
      assert_equal pids.sort, Array.new(3) { Process.wait }.sort
      assert_equal :ran, ticker.value
      assert_raises(Errno::ECHILD) { Process.wait }
    end
  end

  def test_a_wait_that_is_cancelled_leaves_the_child_to_be_reaped
    Heddle.run do
      pid = Process.spawn("sleep 30")
      waiter = Heddle.spawn { Process.wait(pid) }
      waiter.cancel.wait
      assert_equal :cancelled, waiter.status
      Process.kill(:KILL, pid)
      assert_equal pid, Process.wait(pid)
    end
  end

  def test_a_wait_that_times_out
    Heddle.run do
      pid = Process.spawn("sleep 30")
      assert_within(2, at_least: 0.02) { assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Process.wait(pid) } } }
      Process.kill(:KILL, pid)
      assert_equal Signal.list["KILL"], Process.wait2(pid).last.termsig
    end
  end

  def test_no_descriptor_is_left_behind
    Heddle.run { `true` }
    GC.start # what other tests left
    before = descriptor_count
    Heddle.run do
      20.times { Heddle.spawn { system("true") } }
      Heddle.spawn { Process.wait(Process.spawn("sleep 30").tap { |pid| Process.kill(:KILL, pid) }) }
    end
    assert_operator descriptor_count, :<=, before
  end
end
