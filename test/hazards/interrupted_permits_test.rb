# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one

# Another thread's exception (Thread#raise, Thread#kill, Timeout.timeout) interrupts a caller of Heddle::Semaphore and
# of Heddle::ResourcePool, at each moment at which Ruby lets one in. All permits are there again, and nothing waits for
# one in vain. What stands on them (DB::Pool, memcached, FiberPool) is safe by that.
class InterruptedPermitsTest < Minitest::Test
  include LoopHelpers

  mode :thread
  hard_deadline 60

  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[line call return c_call c_return b_call b_return].freeze

  # What is called, and what has happened before.
  CALLS = {
    "a permit" => [-> { Heddle::Semaphore.new(1) }, ->(semaphore) { semaphore.acquire { 1 } }],
    "a permit without a wait" => [-> { Heddle::Semaphore.new(1) }, ->(semaphore) { semaphore.try_acquire { 1 } }],
    "the first resource" => [-> { pool }, ->(pool) { pool.with { 1 } }],
    "a resource that is idle" => [-> { pool.tap { |pool| pool.with { 1 } } }, ->(pool) { pool.with { 1 } }],
    "a resource that has died" =>
      [-> { pool(check: ->(_) { false }).tap { |pool| pool.with { 1 } } }, ->(pool) { pool.with { 1 } }],
    "a resource that is dirty" => [-> { pool(reset: ->(_) { false }) }, ->(pool) { pool.with { 1 } }],
    "a resource in a fiber" => [-> { pool }, ->(pool) { Fiber.new { pool.with { 1 } }.resume }] # may be dropped
  }.freeze

  def self.pool(**hooks)
    hooks = {check: ->(_) { true }, reset: ->(_) { true }, close: ->(resource) { resource.clear }, **hooks}
    Heddle::ResourcePool.new(size: 1, timeout: 5, **hooks) { +"made" }
  end

  CALLS.each do |name, (prepare, call)|
    define_method("test_#{name.tr(" ", "_")}") do
      each_moment { |moment| interrupt(moment, self.class.instance_exec(&prepare), call) }
    end

    next if name.include?("without")

    define_method("test_#{name.tr(" ", "_")}_that_is_waited_for") do
      each_moment(least: 5) do |moment|
        permits = self.class.instance_exec(&prepare)
        caller, held, over = Thread.current, Thread::Queue.new, false
        holder = Thread.new do
          use(permits) do
            held << true
            Thread.pass until over || (caller.stop? && permits.waiting == 1)
          end
        end
        held.pop
        begin
          interrupt(moment, permits, call)
        ensure
          over = true
          holder.join
        end
      end
    end
  end

  # A pool that is closed has told those who wait, and disposed of what was idle.
  def test_close
    each_moment(least: 2) do |moment|
      closed = []
      pool = Heddle::ResourcePool.new(size: 2, close: ->(one) { closed << one }) { Object.new }
      pool.with { pool.with { 1 } } # two
      over = Thread::Queue.new
      holders = Array.new(2) { Thread.new { pool.with { over.pop } } }
      Thread.pass until holders.all?(&:stop?)
      waiter = Thread.new { assert_raises(Heddle::PoolClosed) { pool.with { flunk } } }
      Thread.pass until pool.waiting == 1
      where = interrupt(moment, pool, :close.to_proc, check: false)
      pool.close
      assert waiter.join(stretched(5)), "a caller still waits after the moment #{moment}, #{where}"
      2.times { over << true }
      holders.each(&:join)
      assert_equal [0, 2], [pool.stats[:open], closed.uniq.size], "after the moment #{moment}, #{where}"
      where
    end
  end

  # Interrupts at any time, also while a thread hands its permit to one that waits.
  def test_threads_that_are_interrupted_while_others_wait
    pool = self.class.pool
    finish = monotonic + 2
    threads = Array.new(4) do
      in_background { Thread.handle_interrupt(Interrupted => :never) { use_until(finish, pool) } }
    end
    threads.sample.raise(Interrupted) while sleep(0.0003) && monotonic < finish
    threads.each { |thread| assert ended?(thread), "it waits on: #{thread.backtrace&.first(3)}" }
    assert_all_there(pool)
  end

  def test_threads_that_are_killed
    pool = self.class.pool
    finish = monotonic + 1
    until monotonic > finish
      threads = Array.new(3) { Thread.new { loop { pool.with { Thread.pass } } } }
      sleep(rand * 0.002)
      threads.each(&:kill).each(&:join)
      assert_all_there(pool)
    end
  end

  private

  def ended?(thread)
    thread.join(20)
  rescue Interrupted # at its very end
    true
  end

  def use_until(finish, pool)
    until monotonic > finish
      begin
        Thread.handle_interrupt(Interrupted => :immediate) { 20.times { pool.with { Thread.pass } } }
      rescue Interrupted
        nil
      end
    end
  end

  def use(permits, &) = permits.respond_to?(:with) ? permits.with(&) : permits.acquire(timeout: 5, &)

  def assert_all_there(permits, message = nil)
    assert_equal 1, use(permits) { 1 }, message
    assert_equal 0, permits.waiting, message
  end

  def each_moment(least: 6)
    moment = 0
    moment += 1 while yield(moment + 1)
    assert_operator moment, :>=, least
  end

  # Where it was interrupted; nil when the call was over before that moment.
  def interrupt(moment, permits, call, check: true)
    where = interrupted_at(moment) { call.call(permits) }
    assert_all_there(permits, "after the moment #{moment}, #{where}") if check
    where
  end

  def interrupted_at(moment, &call)
    seen, where = 0, nil
    trace = TracePoint.new(*EVENTS) do |point|
      next if point.defined_class == Exception || (seen += 1) != moment

      where = [point.event, point.path.to_s[/\w+\.rb/], point.lineno, point.method_id].inspect
      Thread.current.raise(Interrupted)
    end
    trace.enable(target_thread: Thread.current, &call)
    where
  rescue Interrupted
    where
  end
end
