# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# An unblock that comes before its fiber has parked: Ruby lists a fiber among the waiters of a Mutex, a Queue or a
# condition, and another thread may run before the fiber calls a hook. The wake-up must not be lost, and one too many
# must do no harm.
class EarlyUnblockTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  # Tasks report their errors although the test looks at them.
  def setup
    @stderr, $stderr = $stderr, StringIO.new
  end

  def teardown
    $stderr = @stderr
  end

  # Lets other threads run after each unblock: in the middle of Ruby's unlocking a Mutex in order to sleep.
  class Slow < Heddle::Scheduler
    def unblock(*)
      super.tap { 5.times { Thread.pass } }
    end
  end

  def test_a_signal_between_the_unlock_and_the_sleep
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    woken = false
    in_thread do
      signaller = Thread.new { condition.broadcast && Thread.pass until woken }
      Fiber.set_scheduler(Slow.new)
      Fiber.schedule do
        woken = Heddle.deadline(5) { mutex.synchronize { sleep(0.01) && condition.wait(mutex) && true } }
      end
      Fiber.schedule { mutex.synchronize {} }
      Fiber.scheduler.close
    ensure
      woken ||= :over
      signaller.join
    end
    assert_equal true, woken
  end

  # An unblock for a fiber that runs, and then `wait`: it must not wait.
  def after_an_unblock
    Heddle.run do
      Fiber.scheduler.unblock(:early, Fiber.current)
      yield
    end
  end

  def test_block_returns_at_once_and_only_once
    after_an_unblock do
      scheduler = Fiber.scheduler
      2.times { scheduler.unblock(:early, Fiber.current) } # three are one
      assert_equal true, scheduler.block(:me, 30)
      assert_equal false, scheduler.block(:me, 0.01)
    end
  end

  def test_mutex_sleep_and_a_conditions_wait_end_early
    [->(mutex) { mutex.sleep }, ->(mutex) { Thread::ConditionVariable.new.wait(mutex) }].each do |wait|
      mutex = Thread::Mutex.new
      after_an_unblock do
        assert_within(5, remeasure: 0) { Heddle.deadline(10) { mutex.synchronize { wait.call(mutex) } } }
      end
    end
  end

  def test_a_sleep_is_not_ended_by_an_early_unblock
    after_an_unblock do
      assert_within(5, at_least: 0.03, remeasure: 0) { sleep(0.03) }
      assert_within(5, at_least: 0.03, remeasure: 0) { Kernel.sleep(0.03) }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.03) { sleep } }
      assert_equal true, Fiber.scheduler.block(:me, 30), "a sleep used the unblock up"
    end
  end

  # A pool whose one task waits for the other task, for which there is no room.
  def full(task)
    Heddle.shield(60) { Heddle::FiberPool.new(1, queue: 0).tap { |pool| pool.spawn { task.wait } } }
  end

  # The remaining waits check again, or wait for something else than an unblock.
  def test_an_early_unblock_ends_no_other_wait
    reader, writer = IO.pipe
    held = Thread::Mutex.new
    thread = Thread.new { held.synchronize { sleep } }
    wait_until { held.locked? }
    waits = {
      queue: ->(_) { Thread::Queue.new.pop },
      sized_queue: ->(_) { Thread::SizedQueue.new(1).tap { |full| full << 1 } << 2 },
      join: ->(_) { thread.join }, join_for: ->(_) { thread.join(30) }, lock: ->(_) { held.lock },
      read: ->(_) { reader.read(1) }, value: ->(task) { task.value }, wait: ->(task) { task.wait(30) },
      pool: ->(task) { full(task).spawn {} }, pool_wait: ->(task) { full(task).wait }
    }
    waits[:pop_for] = ->(_) { Thread::Queue.new.pop(timeout: 30) } if ruby_at_least?("3.2")
    waits.each do |name, wait|
      Heddle.run do
        outcome = nil
        endless = Heddle.spawn { sleep }
        waiter = Heddle.spawn do
          Fiber.scheduler.unblock(:early, Fiber.current)
          outcome = Heddle.deadline(0.03) { wait.call(endless) }
        end
        assert waiter.wait(5), "#{name} did not end at its deadline"
        assert_kind_of Heddle::DeadlineExceeded, waiter.error, "#{name} gave #{outcome.inspect}"
        assert_raises(Heddle::DeadlineExceeded) { waiter.value }
      ensure
        endless.cancel
      end
    end
  ensure
    thread&.kill&.join
    [reader, writer].each(&:close)
  end

  def test_limits_are_kept_after_an_early_unblock
    thread = Thread.new { sleep }
    after_an_unblock { assert_within(5, at_least: 0.03, remeasure: 0) { assert_nil thread.join(0.03) } }
    after_an_unblock do
      assert_within(5, at_least: 0.03, remeasure: 0) { assert_nil Heddle.spawn { sleep(0.1) }.wait(0.03) }
    end
    return unless ruby_at_least?("3.2")

    after_an_unblock do
      assert_within(5, at_least: 0.03, remeasure: 0) { assert_nil Thread::Queue.new.pop(timeout: 0.03) }
    end
  ensure
    thread&.kill&.join
  end

  # A fiber that waits for something else keeps its wake-up for later.
  def test_an_unblock_while_the_fiber_waits_for_a_descriptor
    with_pair do |reader, writer|
      Heddle.run do
        fiber = nil
        waiter = Heddle.spawn { (fiber = Fiber.current) && reader.readpartial(1) && Fiber.scheduler.block(:me, 30) }
        scheduler = Fiber.scheduler
        Thread.new { scheduler.unblock(:early, fiber) }.join
        refute_predicate waiter, :ended?
        writer << "x"
        assert waiter.wait(5), "the unblock was lost"
        assert_equal true, waiter.value
      end
    end
  end

  def test_the_next_task_on_the_fiber_does_not_get_the_unblock
    Heddle.run do
      fiber = Heddle.spawn { Fiber.current.tap { |current| Fiber.scheduler.unblock(:early, current) } }.value
      second = Heddle.spawn { [Fiber.current, Fiber.scheduler.block(:me, 0.01)] }.value
      assert_equal [fiber, false], second, "the fiber was to be used again"
    end
  end

  def test_fibers_that_were_unblocked_are_collected
    Heddle.run do
      map = ObjectSpace::WeakMap.new
      200.times do
        fiber = Fiber.schedule { Fiber.scheduler.unblock(:early, Fiber.current) }
        map[fiber] = Fiber.scheduler.unblock(:late, fiber) # it is dead
      end
      200.times { Fiber.new {}.then { |fiber| map[fiber] = Fiber.scheduler.unblock(:never_run, fiber) } }
      4.times { GC.start }
      assert_operator map.size, :<, 100
      assert_equal 50, Array.new(50) { Heddle.spawn { Fiber.scheduler.block(:me, 0.001) } }.map(&:value).count(false)
    end
  end

  def test_compaction_between_the_unblock_and_the_wait
    skip "this Ruby cannot compact its heap" unless GC.respond_to?(:compact)
    Heddle.run do
      tasks = Array.new(50) do
        Heddle.spawn { Fiber.scheduler.unblock(:early, Fiber.current) || sleep(0.01) && Fiber.scheduler.block(:me, 30) }
      end
      GC.compact
      assert_equal [true] * 50, tasks.map(&:value)
    end
  rescue NotImplementedError
    skip "this Ruby cannot compact its heap"
  end

  # The earlier loop counted the wake-up, which must not hide from the next loop that there is one.
  def test_an_unblock_left_by_an_earlier_loop
    in_thread do
      kept = Array.new(2) do
        scheduler = Heddle::Scheduler.new
        scheduler.installed do
          scheduler.block(:me, 0.001)
          scheduler.unblock(:early, Fiber.current)
          scheduler.unblock(:early, Fiber.current)
          Array.new(2) { scheduler.block(:me, 0.05) }.tap { scheduler.unblock(:left, Fiber.current) }
        end
      end
      assert_equal [[true, false]] * 2, kept
    end
  end

  # The child has the fiber, with its kept wake-up.
  def test_an_unblock_kept_before_a_fork
    out = assert_child(<<~RUBY)
      twice = lambda do |scheduler|
        Fiber.set_scheduler(scheduler)
        scheduler.block(:me, 0.001)
        scheduler.unblock(:early, Fiber.current)
        puts [scheduler.block(:me, 0.05), scheduler.block(:me, 0.05)].inspect
        scheduler.unblock(:early, Fiber.current)
      end
      twice.call(Heddle::Scheduler.new)
      Process.wait(fork { twice.call(Heddle::Scheduler.new) })
    RUBY
    assert_equal ["[true, false]"] * 2, out.lines(chomp: true)
  end

  def test_unblock_of_something_other_than_a_fiber_is_ignored
    Heddle.run do
      [nil, 1, Object.new, Thread.current, Fiber.new {}.freeze].each do |thing|
        assert_nil Fiber.scheduler.unblock(:me, thing)
      end
    end
  end
end
