# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "monitor"
require "timeout"

# Mutex#sleep, and so ConditionVariable#wait and a Monitor's conditions, take the Mutex again before they return or
# raise. Ruby lets nothing interrupt that; neither must a deadline or a cancel, nor Fiber#raise, Fiber#kill or the
# hook fiber_interrupt: afterwards the caller holds the Mutex, whatever happens.
class ReacquireTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  # Tasks report their errors although the test looks at them.
  def setup
    @stderr, $stderr = $stderr, StringIO.new
  end

  def teardown
    $stderr = @stderr
  end

  # Three ways to wait with a lock, each [lock, wait]. A limit of nil waits for a signal.
  def ways
    mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
    monitor = Monitor.new
    monitors = monitor.new_cond
    {
      condition: [mutex, ->(limit) { condition.wait(mutex, limit) }, -> { mutex.owned? }],
      monitor: [monitor, ->(limit) { monitors.wait(limit) }, -> { monitor.mon_owned? }],
      mutex_sleep: [mutex, ->(limit) { mutex.sleep(limit) }, -> { mutex.owned? }]
    }
  end

  # Another task takes the lock while the first sleeps, and holds it until the block has returned. Returns what the
  # first one owned after its wait, and its task.
  def contend(lock, wait, owned, limit, around: ->(&block) { block.call })
    let_go = Thread::Queue.new
    states = []
    waiter = Heddle.spawn do
      around.call do
        lock.synchronize do
          wait.call(limit)
          states << :returned
        ensure
          states << owned.call
        end
      end
    end
    holder = Heddle.spawn { lock.synchronize { let_go.pop } }
    yield waiter
    refute_predicate waiter, :ended?, "it did not wait for its lock"
    let_go << true
    assert holder.wait(5), "the holder still waits"
    assert waiter.wait(5), "the waiter still waits for its lock"
    assert Heddle.spawn { lock.synchronize { true } }.tap { |task| task.wait(5) }.value, "the lock is still locked"
    [states, waiter]
  end

  def test_a_cancel_while_the_lock_is_taken_again_after_a_limit
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        states, waiter = contend(lock, wait, owned, 0.01) { |task| sleep(0.05) && task.cancel && sleep(0.01) }
        assert_equal [[true], :cancelled], [states, waiter.status], name
      end
    end
  end

  def test_a_deadline_while_the_lock_is_taken_again_after_a_limit
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        within = ->(&block) { Heddle.deadline(0.04, &block) }
        states, waiter = contend(lock, wait, owned, 0.01, around: within) { sleep(0.08) }
        assert_equal [true], states, name
        assert_raises(Heddle::DeadlineExceeded) { waiter.value }
      end
    end
  end

  def test_a_deadline_in_the_sleep
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        within = ->(&block) { Heddle.deadline(0.02, &block) }
        states, waiter = contend(lock, wait, owned, nil, around: within) { sleep(0.06) }
        assert_equal [true], states, name
        assert_raises(Heddle::DeadlineExceeded) { waiter.value }
      end
    end
  end

  def test_a_cancel_in_the_sleep_and_another_while_it_reacquires
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        states, waiter = contend(lock, wait, owned, nil) do |task|
          sleep(0.01)
          task.cancel
          sleep(0.01)
          3.times { task.cancel && sleep(0) }
        end
        assert_equal [[true], :cancelled], [states, waiter.status], name
      end
    end
  end

  def test_a_timeout_while_the_lock_is_taken_again
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        within = ->(&block) { Timeout.timeout(0.04, &block) }
        states, waiter = contend(lock, wait, owned, 0.01, around: within) { sleep(0.08) }
        assert_equal [true], states, name
        assert_raises(Timeout::Error) { waiter.value }
      end
    end
  end

  def test_a_shield_delays_exceptions_that_arrive_while_it_reacquires
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        shielded = ->(&block) { Heddle.shield(5, &block) && sleep }
        states, waiter = contend(lock, wait, owned, 0.01, around: shielded) do |task|
          sleep(0.05) && task.cancel && sleep(0.01)
        end
        assert_equal [[:returned, true], :cancelled], [states, waiter.status], name
      end
    end
  end

  INTERRUPTS = {
    raise: ->(fiber, error) { fiber.raise(error) },
    interrupt: ->(fiber, error) { Fiber.scheduler.fiber_interrupt(fiber, error) } # Ruby 4.0 does, from IO#close
  }.freeze

  # The fiber that waits: the task's own, or one that the task has resumed.
  def interrupted_while_it_reacquires(limit: 0.01, nested: false)
    ways.each do |name, (lock, wait, owned)|
      Heddle.run do
        fiber = nil
        within = lambda do |&block|
          body = -> { (fiber = Fiber.current) && block.call }
          nested ? Fiber.new(&body).resume : body.call
        end
        states, waiter = contend(lock, wait, owned, limit, around: within) { yield fiber }
        assert_equal [true], states, name
        error = assert_raises(IOError) { waiter.value }
        yield nil, [error, error.cause]
      end
    end
  end

  INTERRUPTS.each do |how, interrupt|
    [false, true].each do |nested|
      define_method("test_#{how}_while_it_reacquires#{"_of_a_nested_fiber" if nested}") do
        interrupted_while_it_reacquires(nested: nested) do |fiber, errors|
          next assert_equal("interrupted", errors.first.message) unless fiber

          sleep(0.02)
          interrupt.call(fiber, IOError.new("interrupted"))
          sleep(0.001)
        end
      end
    end

    # The first ends the sleep; the second arrives while the lock is taken again because of the first.
    define_method("test_#{how}_in_the_sleep_and_again_while_it_reacquires") do
      interrupted_while_it_reacquires(limit: nil) do |fiber, errors|
        next assert_equal(%w[second first], errors.map(&:message)) unless fiber

        sleep(0.001)
        interrupt.call(fiber, IOError.new("first"))
        sleep(0.001)
        interrupt.call(fiber, IOError.new("second"))
        sleep(0.001)
      end
    end

    define_method("test_#{how}_of_a_fiber_that_takes_its_lock_first") do
      mutex = Thread::Mutex.new
      Heddle.run do
        holder = Heddle.spawn { mutex.synchronize { sleep } }
        fiber = nil
        waiter = Heddle.spawn { (fiber = Fiber.current) && mutex.synchronize {} }
        interrupt.call(fiber, IOError.new("interrupted"))
        assert waiter.wait(5), "it still waits"
        assert_equal "interrupted", assert_raises(IOError) { waiter.value }.message
        holder.cancel
      end
    end
  end

  def test_exceptions_that_arrive_while_it_reacquires_are_raised_in_turn
    mutex = Thread::Mutex.new
    Heddle.run do
      fiber = nil
      errors = []
      waiter = Heddle.spawn do
        fiber = Fiber.current
        mutex.synchronize { mutex.sleep(0.01) }
      rescue IOError => error
        errors << error.message
        begin
          sleep
        rescue IOError => error
          errors << error.message
        end
      end
      mutex.synchronize do
        sleep(0.02)
        3.times { |number| fiber.raise(IOError, number.to_s) }
      end
      assert waiter.wait(5)
      assert_equal %w[0 1], errors
      reused = Heddle.spawn { sleep(0.001) && Fiber.current }
      assert_same fiber, reused.value, "no later wait gets the rest"
    end
  end

  if Fiber.method_defined?(:kill)
    def test_a_nested_fiber_that_is_killed_while_it_reacquires
      ways.each do |name, (lock, wait, owned)|
        Heddle.run do
          fiber = nil
          within = ->(&block) { Fiber.new { (fiber = Fiber.current) && block.call }.resume }
          states, waiter = contend(lock, wait, owned, 0.01, around: within) do
            sleep(0.02) && fiber.kill && sleep(0.001)
          end
          assert_equal [[true], :completed, false], [states, waiter.status, fiber.alive?], name
        end
      end
    end
  end

  # Taking a Mutex is different: a wait in Mutex#lock can be cancelled at once.
  def test_the_first_lock_of_a_mutex_can_be_interrupted
    mutex, monitor = Thread::Mutex.new, Monitor.new
    waits = [-> { mutex.lock }, -> { mutex.synchronize {} }, -> { monitor.enter }, -> { monitor.synchronize {} }]
    waits.each do |wait|
      Heddle.run do
        holder = Heddle.spawn { mutex.synchronize { monitor.synchronize { sleep } } }
        waiter = Heddle.spawn { wait.call }
        late = Heddle.spawn { Heddle.deadline(0.02) { wait.call } }
        assert waiter.cancel.wait(5), "it cannot be cancelled"
        assert_equal :cancelled, waiter.status
        assert late.wait(5), "its deadline does not end it"
        assert_raises(Heddle::DeadlineExceeded) { late.value }
        holder.cancel
      end
    end
  end

  # A subclass of the scheduler that does more than call super.
  class Instrumented < Heddle::Scheduler
    def measured = yield

    def block(*) = measured { super }
    define_method(:kernel_sleep) { |*arguments| [1].each { measured { super(*arguments) } } }
  end

  def test_under_a_subclass_of_the_scheduler
    ways.each do |name, (lock, wait, owned)|
      in_thread do
        Fiber.set_scheduler(Instrumented.new)
        Heddle.run do
          within = ->(&block) { Heddle.deadline(0.02, &block) }
          states, waiter = contend(lock, wait, owned, nil, around: within) do |task|
            sleep(0.06) && task.cancel && sleep(0.01)
          end
          assert_equal [true], states, name
          assert_raises(Heddle::DeadlineExceeded, Heddle::TaskCancelled) { waiter.value }
        end
      end
    end
  end

  # As ActiveRecord's pool waits for a connection: many waiters, some of which give up, on one Monitor.
  def test_a_pool_behind_a_monitor_under_deadlines_and_cancels
    monitor = Monitor.new
    condition = monitor.new_cond
    free = [1, 2]
    errors = Hash.new(0)
    checkout = lambda do
      monitor.synchronize do
        condition.wait(0.5) while free.empty?
        free.pop
      end
    end
    Heddle.run do
      tasks = Array.new(24) do |index|
        Heddle.spawn do
          20.times do
            connection = nil
            Heddle.deadline((index % 3 == 0) ? 0.002 : 10) do
              connection = checkout.call
              sleep(0.001)
            end
          rescue Heddle::DeadlineExceeded, ThreadError => error
            errors[error.class] += 1
          ensure
            Heddle.shield(5) { monitor.synchronize { free.push(connection) && condition.signal } } if connection
          end
        end
      end
      tasks.last(4).each { |task| sleep(0.005) && task.cancel }
      tasks.each { |task| assert task.wait(20), "a task still waits: #{task.waits_for}" }
    end
    assert_equal [Heddle::DeadlineExceeded], errors.keys
    assert_equal [1, 2], free.sort
    assert monitor.mon_try_enter, "the monitor is still locked"
    monitor.mon_exit
  end
end
