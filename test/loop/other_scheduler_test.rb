# frozen_string_literal: true

require "test_helper"
require "tmpdir"
require "support/loop_helpers"
require "support/hosts"
require "support/least_scheduler"

# Runs, tasks and pools under another gem's scheduler, through its public hooks.
class OtherSchedulerTest < Minitest::Test
  include LoopHelpers

  TRACE = []

  def setup
    reason = Hosts.missing(:async)
    skip reason if reason
  end

  def test_values_and_names
    under_async do
      task = Heddle.spawn(name: "worker") { sleep(0.001) && Heddle::Task.current.name }
      assert_equal :waiting, task.status
      assert_equal ["worker", :completed], [task.value, task.status]
      refute_kind_of Heddle::Scheduler, Fiber.scheduler
    end
  end

  def test_a_task_whose_fiber_the_scheduler_refuses
    refusing = Class.new(LeastScheduler) do
      attr_writer :full

      def fiber(&block) = @full ? raise(IOError, "full") : super
    end
    value = nil
    thread = in_background do
      Fiber.set_scheduler(scheduler = refusing.new)
      Fiber.schedule do
        value = Heddle.run do
          scheduler.full = true
          assert_raises(IOError) { Heddle.spawn { flunk } }.message
        end
      end
    end
    assert thread.join(stretched(10)), "the run waits for a task that has never begun"
    assert_equal "full", value
  end

  # Ruby 3.1 does not let a second fiber of the thread wait for an autoload: to it the constant is missing.
  def test_no_other_task_runs_before_a_file_that_is_required
    Dir.mktmpdir do |folder|
      File.write(path = "#{folder}/required.rb", "OtherSchedulerTest::TRACE << :loaded\n")
      under_async do
        start = Thread::Queue.new
        tasks = Array.new(2) { Heddle.spawn { start.pop || (TRACE << :asks && require(path)) } }
        start.close
        tasks.each(&:wait)
      end
      assert_equal %i[asks loaded asks], TRACE
    end
  end

  def test_run_waits_for_its_tasks
    ended = []
    assert_equal :value,
      under_async { 3.times { |index| Heddle.spawn { sleep(0.001 * (3 - index)) && ended << index } } && :value }
    assert_equal [0, 1, 2], ended.sort
  end

  def test_many_tasks_at_once
    under_async do
      assert_within(1.5) do
        assert_equal [*0...200], Array.new(200) { |index| Heddle.spawn { sleep(0.1) && index } }.map(&:value)
      end
    end
  end

  def test_an_error_that_leaves_the_block_cancels_the_tasks
    ensured = []
    assert_raises(IOError) do
      under_async do
        2.times do |index|
          Heddle.spawn do
            sleep
          ensure
            ensured << index
          end
        end
        raise IOError
      end
    end
    assert_equal [0, 1], ensured.sort
  end

  def test_an_error_in_a_task_is_its_value
    report = stderr_of do
      assert_equal "in a task", assert_raises(IOError) {
        under_async { Heddle.spawn(name: "unlucky") { sleep(0.001) && raise(IOError, "in a task") } }
      }.message
    end
    assert_includes report, "unlucky"
    under_async { assert_raises(IOError) { Heddle.spawn { sleep(0.001) && raise(IOError) }.value } }
  end

  def test_cancel
    with_pair do |reader, _|
      under_async do
        tasks = [Heddle.spawn { sleep }, Heddle.spawn { reader.read(1) }, Heddle.spawn { Thread::Queue.new.pop }]
        tasks.each(&:cancel).each { |task| assert task.wait(5) }
        assert_equal [:cancelled] * 3, tasks.map(&:status)
        assert_raises(Heddle::TaskCancelled) { tasks.first.value }
      end
    end
  end

  def test_a_task_that_cancels_itself
    under_async { assert_equal :cancelled, Heddle.spawn { Heddle::Task.current.cancel }.status }
  end

  def test_wait_with_a_timeout
    under_async do
      task = Heddle.spawn { sleep(0.1) && 1 }
      assert_nil task.wait(0.01)
      assert_same task, task.wait(10)
    end
  end

  def test_nested_runs
    under_async do
      go_on = Thread::Queue.new
      outer = Heddle.spawn { go_on.pop }
      assert_equal :inner, Heddle.run { Heddle.spawn { sleep(0.001) && :inner }.value }
      assert_equal :waiting, outer.status
      go_on << :outer
      assert_equal :outer, outer.value
    end
  end

  def test_pools
    under_async do
      pool = Heddle::FiberPool.new(3, queue: 2)
      assert_equal (0...20).map { |index| index * 2 }, pool.map(0...20) { |index| sleep(0.0005) && index * 2 }
      assert_raises(IOError) { pool.map(0...20) { |index| (index == 2) ? sleep(0.001) && raise(IOError) : sleep(10) } }
      tasks = Array.new(10) { |index| pool.spawn { sleep(0.0005) && index } }
      assert_equal [*0...10], tasks.map(&:value)
      assert_same pool, pool.wait
      assert_equal 0, pool.statistics[:running]
      pool.close
      assert_raises(Heddle::PoolClosed) { pool.spawn {} }
    end
  end

  def test_a_run_inside_a_task_of_async
    result = Async { |task|
      Array.new(3) { |index| task.async { Heddle.run { Heddle.spawn { sleep(0.001) && index }.value } } }.map(&:wait)
    }.wait
    assert_equal [0, 1, 2], result
  end

  # The error of the one is raised once the others are awake.
  def test_a_scheduler_that_fails_to_wake_its_fiber_leaves_nobody_else_asleep
    events = Heddle.const_get(:EventCount).new
    begun = false
    failing = Class.new(LeastScheduler) do
      define_method(:block) { |*arguments| (begun = true) && super(*arguments) }
      define_method(:unblock) { |*| raise IOError, "this scheduler wakes nobody" }
    end
    first = in_background { Fiber.set_scheduler(failing.new) && Fiber.schedule { events.wait(0, 1) } }
    wait_until { begun }
    second = in_background { events.wait(0, 30) }
    wait_until { second.stop? }
    assert_raises(IOError) { events.advance }
    assert second.join(stretched(5)), "it still waits"
    assert first.join(stretched(5))
  end

  private

  def under_async(&block) = Hosts.run(:async) { block.call }
end

# The same under schedulers that offer one way to raise in a fiber, or none: then Ruby's own is used.
class LeastSchedulerTest < Minitest::Test
  include LoopHelpers

  WAYS = {
    nothing: Class.new(LeastScheduler),
    fiber_interrupt: Class.new(LeastScheduler) { def fiber_interrupt(fiber, error) = fiber.raise(error) },
    raise: Class.new(LeastScheduler) { def raise(fiber, error) = fiber.raise(error) }
  }.freeze

  WAYS.each do |name, scheduler|
    define_method("test_values_and_cancels_by_#{name}") do
      assert_equal [1, [:cancelled, true], [:cancelled, true], :late], under(scheduler) {
        [Heddle.spawn { sleep(0.001) && 1 }.value, cancelled { sleep }, cancelled { Thread::Queue.new.pop },
          bounded { sleep }]
      }
    end

    define_method("test_an_error_of_the_block_by_#{name}") do
      ensured = 0
      assert_raises(IOError) do
        under(scheduler) do
          Array.new(3) { Heddle.spawn { begin sleep ensure ensured += 1 end } }
          raise IOError
        end
      end
      assert_equal 3, ensured
    end
  end

  private

  def cancelled
    ensured = false
    task = Heddle.spawn do
      yield
    ensure
      ensured = true
    end
    [task.cancel.wait.status, ensured]
  end

  def bounded(&block)
    Heddle.deadline(0.01, &block)
  rescue Heddle::DeadlineExceeded
    :late
  end

  def under(scheduler)
    in_thread do
      outcome = nil
      Fiber.set_scheduler(scheduler.new)
      Fiber.schedule do
        outcome = Heddle.run { yield }
      rescue IOError => error
        outcome = error
      end
      Fiber.set_scheduler(nil)
      outcome.is_a?(IOError) ? raise(outcome) : outcome
    end
  end
end
