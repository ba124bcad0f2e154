# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/nonblock"

# Contract test: the guard that shuts a socket down while no Ruby thread can run.
class SocketGuardTest < Minitest::Test
  include LoopHelpers

  def test_a_guard_shuts_its_socket_down_in_time
    with_pair do |one, other|
      guard = nil
      assert_within(1, at_least: 0.05, remeasure: 0) do
        guard = Heddle::SocketGuard.new(one.fileno, 0.05)
        refute_predicate guard, :cut?
        assert_nil other.read(1)
      end
      assert_predicate guard, :cut?
      guard.release
    end
  end

  def test_several_guards_in_any_order
    pairs = Array.new(20) { UNIXSocket.pair }
    guards = pairs.map
      .with_index { |(one, _), index| Heddle::SocketGuard.new(one.fileno, 0.01 + 0.01 * (index * 7 % 20)) }
    guards.each_slice(2) { |_, second| second.release }
    pairs.each_slice(2) { |(_, other), _| assert_nil other.read(1) }
    assert_equal [true, false] * 10, guards.map(&:cut?)
    pairs.each_slice(2) { |_, (one, other)| one.write("x") && assert_equal("x", other.read(1)) }
  ensure
    guards.each(&:release)
    pairs.flatten.each(&:close)
  end

  def test_a_guard_holds_the_connection_and_not_the_number
    one, other = UNIXSocket.pair
    guard = Heddle::SocketGuard.new(one.fileno, 0.05)
    number = one.fileno
    one.close
    with_pair do |another, far|
      assert_equal number, another.fileno
      assert_nil other.read(1)
      another.write("x")
      assert_equal "x", far.read(1)
    end
    guard.release
  ensure
    other.close
  end

  def test_one_guard_has_one_socket
    with_pair do |one, other|
      before = descriptor_count
      guard = Heddle::SocketGuard.new(one.fileno, 60)
      assert_match(/has a socket/, assert_raises(ArgumentError) { guard.send(:initialize, other.fileno, 60) }.message)
      guard.release
      assert_equal before, descriptor_count
      guard.cut
      guard.send(:initialize, one.fileno, 0.01)
      assert_nil other.read(1)
      guard.release
      assert_equal before, descriptor_count
    end
  end

  def test_cutting_at_once_and_twice
    with_pair do |one, other|
      guard = Heddle::SocketGuard.new(one.fileno, nil)
      assert_same guard, guard.cut.cut
      assert_nil other.read(1)
      assert_predicate guard, :cut?
      guard.release.release
      guard.cut
    end
  end

  def test_released_guards_leave_no_descriptor
    with_pair do |one, other|
      before = descriptor_count
      50.times { Heddle::SocketGuard.new(one.fileno, 60).release }
      100.times { Heddle::SocketGuard.new(one.fileno, 60) }
      wait_until(what: "the collection of the abandoned ones") { GC.start || descriptor_count <= before + 5 }
      guard = Heddle::SocketGuard.new(one.fileno, 60)
      one.write("x")
      assert_equal "x", other.read(1)
      guard.release
    end
  end

  # In a process of its own: a guard of another test that is not collected yet keeps the thread.
  def test_the_guards_thread_ends_and_starts_again
    assert_child(<<~RUBY)
      tasks = -> { Dir.children("/proc/self/task").size }
      one, other = UNIXSocket.pair
      Heddle::SocketGuard.new(one.fileno, 0.02).release
      with_one = tasks.call
      limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 10
      until tasks.call < with_one
        abort "the idle thread has not ended" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
        sleep 0.01
      end
      guard = Heddle::SocketGuard.new(one.fileno, 0.02)
      abort "the socket was not shut down" if other.read(1)
      guard.release
    RUBY
  end

  def test_in_a_child_of_fork
    out = assert_child(<<~RUBY)
      one, other = UNIXSocket.pair
      parents = Heddle::SocketGuard.new(one.fileno, 0.3)
      pid = fork do
        mine, far = UNIXSocket.pair
        guard = Heddle::SocketGuard.new(mine.fileno, 0.01)
        far.read(1)
        parents.release
        exit!(guard.cut? ? 5 : 6)
      end
      puts Process.wait2(pid).last.exitstatus
      other.read(1)
      puts parents.cut?
    RUBY
    assert_equal "5\ntrue\n", out
  end

  # The reason for the guard: recv in C with the GVL held.
  def test_a_guard_fires_while_the_gvl_is_held
    with_pair do |one, _|
      one.nonblock = false
      guard = Heddle::SocketGuard.new(one.fileno, 0.05)
      assert_within(2, at_least: 0.04, remeasure: 0) { assert_equal 0, NativeCalls.recv_holding_the_lock(one.fileno) }
      guard.release
    end
  end

  def test_bad_arguments
    assert_raises(Errno::EBADF) { Heddle::SocketGuard.new(1 << 20, 1) }
    assert_raises(TypeError) { Heddle::SocketGuard.new("x", 1) }
    with_pair { |one, _| assert_raises(ArgumentError) { Heddle::SocketGuard.new(one.fileno, -1) } }
  end
end
