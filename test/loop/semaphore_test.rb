# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/both_modes"

# Heddle::Semaphore, in tasks and in plain threads.
module SemaphoreSuite
  include LoopHelpers

  def test_permits
    semaphore = Heddle::Semaphore.new(2)
    assert_same semaphore, semaphore.acquire
    assert_equal :value, semaphore.acquire { [semaphore.available, semaphore.try_acquire] == [0, false] && :value }
    assert_nil(semaphore.acquire { semaphore.try_acquire { flunk } })
    assert_equal [2, 1, 0], [semaphore.permits, semaphore.available, semaphore.waiting]
    assert semaphore.try_acquire
    assert_same semaphore, semaphore.release.release
    assert_raises(ThreadError) { semaphore.release }
    assert_equal "#<Heddle::Semaphore 0 of 2 taken, 0 waiting>", semaphore.inspect
  end

  def test_bad_values
    [nil, 1.5, "1"].each { |value| assert_raises(TypeError) { Heddle::Semaphore.new(value) } }
    assert_raises(ArgumentError) { Heddle::Semaphore.new(-1) }
    semaphore = Heddle::Semaphore.new(1)
    assert_raises(ArgumentError) { semaphore.acquire(seconds: 1) }
    assert_raises(ArgumentError) { semaphore.acquire(timeout: -1) }
    assert_raises(ArgumentError) { semaphore.acquire(1) }
    assert_raises(ArgumentError) { semaphore.permits = -1 }
    assert_equal 1, semaphore.available
  end

  def test_the_longest_waiter_is_first
    in_host do
      semaphore, order = Heddle::Semaphore.new(1), []
      semaphore.acquire
      waiters = Array.new(5) do |number|
        start { semaphore.acquire { order << number } }.tap { wait_until { semaphore.waiting == number + 1 } }
      end
      semaphore.release
      # A newcomer finds none, although nobody has it yet.
      refute semaphore.try_acquire if Fiber.scheduler
      waiters.each(&:value)
      assert_equal (0..4).to_a, order
      assert_equal 1, semaphore.available
    end
  end

  def test_a_wait_that_takes_too_long
    in_host do
      semaphore = Heddle::Semaphore.new(0)
      error = assert_within(2, at_least: 0.04) do
        assert_raises(Heddle::DeadlineExceeded) { semaphore.acquire(timeout: 0.05) { flunk } }
      end
      assert_equal "none of 0 permits became free in 0.05 s", error.message
      assert_raises(Heddle::DeadlineExceeded) { semaphore.acquire(timeout: 0) }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { semaphore.acquire(timeout: 60) } }
      assert_equal 0, semaphore.waiting
    end
  end

  def test_the_number_of_permits_changes
    in_host do
      semaphore = Heddle::Semaphore.new(0)
      waiters = Array.new(3) { start { semaphore.acquire && :taken } }
      wait_until { semaphore.waiting == 3 }
      semaphore.permits = 2
      wait_until { waiters.count { |waiter| ended?(waiter) } == 2 }
      semaphore.permits = 1
      semaphore.release
      assert_equal [0, 1], [semaphore.available, semaphore.waiting]
      semaphore.release
      assert_equal %i[taken] * 3, waiters.map(&:value)
    end
  end

  def test_close
    in_host do
      semaphore = Heddle::Semaphore.new(1)
      semaphore.acquire
      waiters = Array.new(2) { start { assert_raises(Heddle::PoolClosed) { semaphore.acquire } } }
      wait_until { semaphore.waiting == 2 }
      assert_same semaphore, semaphore.close
      waiters.each(&:value)
      assert_predicate semaphore, :closed?
      refute semaphore.release.try_acquire
      assert_raises(Heddle::PoolClosed) { semaphore.acquire }
    end
  end

  # A task hands its permit to a thread, and a thread to a task.
  def test_a_waiter_elsewhere
    in_host do
      semaphore, turns = Heddle::Semaphore.new(1), Thread::Queue.new
      users = Array.new(2) { |n| [start { use(semaphore, turns, n) }, Thread.new { use(semaphore, turns, n + 2) }] }
      users.flatten.each(&:value)
      assert_equal 400, turns.size
      assert_equal 1, semaphore.available
    end
  end

  def test_a_child_of_fork_has_all_permits
    semaphore = Heddle::Semaphore.new(1)
    waiter = nil
    status = semaphore.acquire do
      waiter = Thread.new { semaphore.acquire { :taken } }
      wait_until { semaphore.waiting == 1 }
      pid = fork { exit!(semaphore.waiting.zero? && semaphore.acquire { semaphore.available.zero? }) }
      Process.wait2(pid).last
    end
    assert_predicate status, :success?
    assert_equal :taken, waiter.value
  end

  def test_a_child_of_fork_does_not_return_its_parents_permit
    semaphore = Heddle::Semaphore.new(1)
    pid = semaphore.acquire { fork }
    exit!(semaphore.available == 1) unless pid
    assert_predicate Process.wait2(pid).last, :success?
  end

  def test_objects_that_move
    skip "this Ruby cannot compact its heap" unless GC.respond_to?(:verify_compaction_references)
    in_host do
      semaphore = Heddle::Semaphore.new(1)
      pool = Heddle::ResourcePool.new(size: 2) { +"resource" }
      waiters = semaphore.acquire do
        list = Array.new(3) { |n| start { semaphore.acquire { pool.with { |one| pool.with { one + n.to_s } } } } }
        wait_until { semaphore.waiting == 3 }
        compact
        list
      end
      assert_equal %w[resource0 resource1 resource2], waiters.map(&:value).sort
      compact
      assert_equal "resource", pool.with(&:itself)
    end
  end

  private

  def start(&block) = Fiber.scheduler ? Heddle.spawn(&block) : in_background(&block)

  def ended?(waiter) = waiter.respond_to?(:alive?) ? !waiter.alive? : waiter.ended?

  def compact
    GC.verify_compaction_references(toward: :empty, **((RUBY_VERSION < "3.2") ? {double_heap: true} : {}))
  rescue NotImplementedError
    GC.start
  end

  def use(semaphore, turns, number)
    100.times do
      semaphore.acquire do
        turns << number
        sleep(0)
      end
    end
  end
end

BothModes.define("Semaphore", SemaphoreSuite)
