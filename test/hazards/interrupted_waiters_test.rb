# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A plain thread is woken and, before it runs, interrupted: by a deadline, Timeout.timeout, Thread#raise or Thread#kill.
# Ruby lets it leave with the wake-up. These tests fail on a Ruby that wakes the next waiter instead.
class InterruptedWaitersTest < Minitest::Test
  include LoopHelpers

  mode :thread

  MENDED = "Ruby wakes the next one now: say so in doc/limits.md, and let WaitStress interrupt threads everywhere"

  def test_a_mutex
    mutex = Thread::Mutex.new.lock
    first, second = waiting_threads { mutex.synchronize { :locked } }
    first.raise(IOError, "interrupted")
    mutex.unlock
    assert_raises(IOError) { first.value }
    refute_predicate mutex, :locked?
    assert_nil second.join(0.3), MENDED
    mutex.synchronize {}
    assert_equal :locked, second.value # the next unlock wakes it
  ensure
    [first, second].compact.each(&:kill)
  end

  def test_a_condition
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    first, second = waiting_threads { mutex.synchronize { condition.wait(mutex) && :signalled } }
    mutex.synchronize do
      first.raise(IOError, "interrupted")
      condition.signal
    end
    assert_raises(IOError) { first.value }
    assert_nil second.join(0.3), MENDED
    mutex.synchronize { condition.signal }
    assert_equal :signalled, second.value
  ensure
    [first, second].compact.each(&:kill)
  end

  def test_a_queue
    queue = Thread::Queue.new
    first, second = waiting_threads { queue.pop }
    first.raise(IOError, "interrupted")
    queue << :item
    assert_raises(IOError) { first.value }
    assert_equal 1, queue.size
    assert_nil second.join(0.3), MENDED
    queue << :other
    assert_equal :item, second.value
  ensure
    [first, second].compact.each(&:kill)
  end

  private

  # Two threads, the first of which waits for longer.
  def waiting_threads(&wait)
    Array.new(2) { in_background(&wait).tap { |thread| wait_until { thread.stop? } } }
  end
end
