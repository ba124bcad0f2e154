# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit]

# What other code does to a waiting fiber through Fiber's own methods: the caller continues, and the fiber's `ensure`
# blocks run.
class InterruptedFibersTest < Minitest::Test
  include LoopHelpers

  KILLS = Fiber.method_defined?(:kill)
  LOCKED = Thread::Mutex.new
  WAITS = {
    sleep: -> { sleep },
    sleep_a_minute: -> { sleep(60) },
    queue: -> { Thread::Queue.new.pop },
    descriptor: -> { IO.pipe.then { |reader, _writer| reader.wait_readable } },
    select: -> { IO.pipe.then { |reader, _writer| IO.select([reader]) } },
    mutex: -> { LOCKED.synchronize {} },
    condition: -> { Thread::ConditionVariable.new.wait(Thread::Mutex.new.tap(&:lock)) },
    task: -> { Heddle.spawn { sleep(60) }.value },
    turns: -> { loop { sleep(0) } },
    deadline: -> { Heddle.deadline(60) { sleep } },
    timeout: -> { Timeout.timeout(60) { sleep } }
  }.freeze

  if KILLS
    WAITS.each do |name, wait|
      define_method("test_kill_at_#{name}") do
        LOCKED.lock
        interrupt(wait, :kill) do |task, steps|
          assert_equal [%i[ensure waited], :cancelled], [steps, task.status]
        end
      ensure
        LOCKED.unlock
      end
    end

    def test_a_fiber_of_fiber_schedule_can_be_killed
      Heddle.run do
        steps = []
        fiber = Fiber.schedule do
          sleep
        ensure
          sleep(0.001)
          steps << :waited
        end
        assert_same fiber, fiber.kill
        sleep(0.001) until steps == [:waited]
        sleep(0)
        refute_predicate fiber, :alive?
      end
    end

    def test_a_task_that_kills_itself
      steps = []
      task = Heddle.run do
        Heddle.spawn do
          Fiber.current.kill
          steps << :went_on
        rescue Exception # rubocop:disable Lint/RescueException
          steps << :rescued
        ensure
          sleep(0.001)
          steps << :waited
        end
      end
      assert_equal [[:waited], :cancelled], [steps, task.status]
    end

    def test_a_shield_delays_a_kill
      Heddle.run do
        steps = []
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          Heddle.shield(5) { sleep(0.01) && steps << :shielded }
          sleep
        ensure
          steps << :ensure
        end
        fiber.kill
        assert task.wait(5)
        assert_equal [%i[shielded ensure], :cancelled], [steps, task.status]
      end
    end

    def test_a_task_whose_fiber_has_resumed_another_that_waits
      Heddle.run do
        steps = []
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          Fiber.new do
            sleep
          ensure
            steps << :inner
          end.resume
        ensure
          sleep(0.001)
          steps << :outer
        end
        fiber.kill
        assert task.wait(5)
        assert_equal [%i[inner outer], :cancelled], [steps, task.status]
      end
    end

    def test_a_fiber_made_by_a_task_is_killed_alone
      Heddle.run do
        steps = []
        inner = nil
        task = Heddle.spawn do
          inner = Fiber.new do
            sleep
          ensure
            steps << :inner
          end
          inner.resume
          :went_on
        end
        inner.kill
        assert task.wait(5)
        assert_equal [[:inner], :went_on, false], [steps, task.value, inner.alive?]
      end
    end

    def test_a_fiber_inside_of_the_task_kills_it
      Heddle.run do
        steps = []
        task = Heddle.spawn do
          outer = Fiber.current
          Fiber.new { outer.kill && steps << :went_on }.resume
          steps << :not_killed
        ensure
          steps << :ensure
        end
        assert task.wait(5)
        assert_equal [[:ensure], :cancelled], [steps, task.status]
      end
    end

    def test_killing_twice_and_killing_dead_fibers
      Heddle.run do
        steps = []
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          sleep
        ensure
          sleep(0.01)
          steps << :waited
        end
        2.times { fiber.kill }
        assert task.wait(5)
        3.times { fiber.kill } # waits for its next task
        assert_equal [[:waited], :cancelled, :fine], [steps, task.status, Heddle.spawn { sleep(0.001) && :fine }.value]
      end
    end

    def test_places_in_a_pool_outlive_killed_tasks
      Heddle.run do
        pool = Heddle::FiberPool.new(1)
        fiber = nil
        pool.spawn { (fiber = Fiber.current) && sleep }
        other = pool.spawn { :ran }
        fiber.kill
        assert_equal :ran, other.value
      end
    end

    def test_kill_from_another_thread_is_an_error_at_once
      Heddle.run do
        fiber = nil
        task = Heddle.spawn { (fiber = Fiber.current) && sleep(0.01) }
        Thread.new { assert_raises(FiberError) { fiber.kill } }.join
        assert task.wait(5)
      end
    end
  end

  INTERRUPTERS = {
    a_task: ->(work) { Heddle.spawn(&work).value },
    a_scheduled_fiber: ->(work) { Thread::Queue.new.tap { |queue| Fiber.schedule { queue << work.call } }.pop },
    a_nested_fiber: ->(work) { Fiber.new(&work).resume },
    an_enumerator: ->(work) { Enumerator.new { |yielder| yielder << work.call }.next }
  }.freeze

  WAITS.except(:task).each do |name, wait| # whose task would sleep on
    define_method("test_an_exception_keeps_its_cause_at_#{name}") do
      LOCKED.lock
      cause = RuntimeError.new("the cause")
      error = nil
      Heddle.run do
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          wait.call
        rescue IOError => error
          nil
        end
        fiber.raise(IOError, "interrupted", cause: cause)
        assert task.wait(5)
      end
      assert_same cause, error.cause
    ensure
      LOCKED.unlock
    end
  end

  def test_an_exception_keeps_its_cause_in_a_fiber_that_has_yielded
    cause = RuntimeError.new("the cause")
    Heddle.run do
      fiber = Fiber.new { Fiber.yield }
      fiber.resume
      error = assert_raises(IOError) { fiber.raise(IOError, "interrupted", cause: cause) }
      assert_same cause, error.cause
    end
  end

  INTERRUPTERS.each do |name, interrupter|
    define_method("test_raise_from_#{name}") do
      blow = ->(fiber) { interrupter.call(-> { fiber.raise(Interrupt, "interrupted") || :back }) }
      interrupt(WAITS[:sleep], blow) do |task, steps|
        assert_equal [%i[rescued ensure waited], :completed], [steps, task.status]
      end
    end

    if KILLS
      define_method("test_kill_from_#{name}") do
        interrupt(WAITS[:sleep], ->(fiber) { interrupter.call(-> { fiber.kill && :back }) }) do |task, steps|
          assert_equal [%i[ensure waited], :cancelled], [steps, task.status]
        end
      end
    end

    %i[transfer resume].each do |way|
      define_method("test_#{way}_from_#{name}_is_an_error_at_once") do
        Heddle.run do
          fiber = inner = nil
          task = Heddle.spawn { (fiber = Fiber.current) && sleep(0.01) && :slept }
          nested = Heddle.spawn { Fiber.new { (inner = Fiber.current) && sleep(0.01) && :slept }.resume }
          [fiber, inner].each do |target|
            interrupter.call(-> { assert_raises(FiberError) { target.public_send(way) } })
          end
          assert_equal %i[slept slept], [task.value, nested.value]
        end
      end
    end
  end

  def test_the_message_of_a_refused_transfer
    Heddle.run do
      fiber = nil
      task = Heddle.spawn { (fiber = Fiber.current) && sleep(0.01) }
      assert_match(/waits in Heddle's loop/, assert_raises(FiberError) { fiber.transfer }.message)
      task.wait
      assert_raises(FiberError) { fiber.transfer } # kept for another task
    end
  end

  def test_raise_in_a_nested_fiber_that_gives_its_turn_away
    Heddle.run do
      inner = nil
      task = Heddle.spawn do
        Fiber.new do
          inner = Fiber.current
          loop { sleep(0) }
        rescue IOError => error
          error.message
        end.resume
      end
      went_on = Heddle.spawn { inner.raise(IOError, "interrupted") || :back }
      assert_equal ["interrupted", :back], [task, went_on].map { |each| each.wait(5)&.value }
    end
  end

  def test_raise_from_another_thread_is_an_error_at_once
    Heddle.run do
      fiber = nil
      task = Heddle.spawn { (fiber = Fiber.current) && sleep(0.01) && :slept }
      Thread.new { assert_raises(FiberError) { fiber.raise("interrupted") } }.join
      assert_equal :slept, task.value
    end
  end

  def test_a_waiting_fiber_is_found_among_many
    [-> { sleep }, -> { IO.pipe.then { |reader, _writer| reader.wait_readable } }].each do |wait|
      few, many = [50, 5000].map { |others| raise_beside(others, wait) }
      few, many = [50, 5000].map { |others| raise_beside(others, wait) } if many > 3 * few
      assert_operator many, :<=, 3 * few
    end
  end

  private

  # CPU time.
  def raise_beside(others, wait)
    Heddle.run do
      rest = Array.new(others) { Heddle.spawn { sleep } }
      fibers = []
      tasks = Array.new(200) do
        Heddle.spawn do
          fibers << Fiber.current
          wait.call
        rescue IOError
          nil
        end
      end
      GC.start
      GC.disable
      spent = cpu_time do
        fibers.each { |fiber| Fiber.scheduler.fiber_interrupt(fiber, IOError.new("interrupted")) }
      end
      GC.enable
      tasks.each(&:wait)
      rest.each(&:cancel)
      spent
    end
  end

  # A task waits and is interrupted; the block gets the task, once it has ended, and what it did.
  def interrupt(wait, way)
    Heddle.run do
      steps = []
      fiber = nil
      task = Heddle.spawn do
        fiber = Fiber.current
        wait.call
      rescue Exception # rubocop:disable Lint/RescueException
        steps << :rescued
      ensure
        steps << :ensure
        sleep(0.001)
        steps << :waited
      end
      result = way.to_proc.call(fiber)
      assert result, "the one who interrupted did not come back"
      assert task.wait(5), "it did not end"
      yield task, steps
    ensure
      Fiber.scheduler.tasks.each { |rest| rest.cancel unless rest.equal?(Heddle::Task.current) }
    end
  end
end
