# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

# Each raises a specific error that says what to do; nothing hangs, and other tasks continue.
class BadInputTest < Minitest::Test
  include LoopHelpers

  def test_methods_without_their_block
    assert_includes assert_raises(ArgumentError) { Heddle.run }.message, "needs a block"
    assert_includes assert_raises(ArgumentError) { Heddle::FiberPool.retire_if }.message, "needs a block"
    Heddle.run do
      assert_includes assert_raises(ArgumentError) { Heddle.spawn }.message, "needs a block"
      assert_raises(ArgumentError) { Fiber.scheduler.fiber }
      pool = Heddle::FiberPool.new(1)
      assert_includes assert_raises(ArgumentError) { pool.spawn }.message, "needs a block"
      assert_includes assert_raises(ArgumentError) { pool.map([1]) }.message, "needs a block"
      assert_includes assert_raises(ArgumentError) { pool.each([1]) }.message, "needs a block"
      assert_equal [1], pool.map([1]) { |number| number }
    end
  end

  def test_spawn_outside_of_a_run
    error = assert_raises(Heddle::SchedulerMissing) { Heddle.spawn { flunk } }
    assert_includes error.message, "Heddle.run"
    assert_kind_of Heddle::Error, error
    Heddle.run {}
    assert_raises(Heddle::SchedulerMissing) { Heddle.spawn { flunk } }
    assert_raises(Heddle::SchedulerMissing) do
      Thread.new { Heddle.spawn { flunk } }.tap { |thread| thread.report_on_exception = false }.value
    end
  end

  def test_arguments_of_spawn
    Heddle.run do
      assert_raises(ArgumentError) { Heddle.spawn(1) {} }
      assert_raises(ArgumentError) { Heddle.spawn(nmae: "x") {} }
      assert_equal "12", Heddle.spawn(name: 12) {}.name
      assert_equal 0, Fiber.scheduler.statistics[:tasks] - 1
    end
  end

  def test_tasks_cannot_be_made_without_spawn
    assert_raises(NoMethodError) { Heddle::Task.new }
    assert_raises(TypeError, NoMethodError) { Heddle::Task.allocate }
  end

  NOT_SPANS = {
    "a String" => "1", "a Symbol" => :soon, "an Array" => [1], "an Object" => Object.new, "a Range" => (1..2),
    "true" => true
  }.freeze

  NOT_SPANS.each do |name, value|
    define_method("test_#{name}_as_a_span".tr(" ", "_")) do
      with_pair do |reader, _|
        in_every_wait(reader) { |kind, wait| assert_raises(TypeError, kind) { wait.call(value) } }
      end
    end
  end

  {"minus one" => -1, "a negative Float" => -0.001, "minus infinity" => -Float::INFINITY,
   "NaN" => Float::NAN}.each do |name, value|
    define_method("test_#{name}_as_a_span".tr(" ", "_")) do
      with_pair do |reader, _|
        in_every_wait(reader) do |kind, wait|
          # Ruby itself passes `block` the rest of a time, which may be negative.
          next assert_equal(false, wait.call(value)) if kind == "block" && value < 0

          assert_raises(ArgumentError, FloatDomainError, RangeError, kind) { wait.call(value) }
        end
      end
    end
  end

  def test_infinite_spans_wait_without_limit
    with_pair do |reader, writer|
      Heddle.run do
        tasks = [Heddle.spawn { sleep(Float::INFINITY) }, Heddle.spawn { Fiber.scheduler.block(:me, Float::INFINITY) },
          Heddle.spawn { Fiber.scheduler.io_wait(reader, IO::READABLE, Float::INFINITY) }]
        sleep(0.01)
        assert_equal [:waiting] * 3, tasks.map(&:status)
        tasks.each(&:cancel)
      end
    end
  end

  def test_a_time_span_of_nil
    Heddle.run do
      assert_equal 1, Heddle.spawn { 1 }.wait(nil).value
    end
  end

  # As Kernel#sleep: anything that responds to divmod like a number is a span.
  def test_a_time_span_that_is_not_a_number
    span = Object.new
    def span.divmod(_) = [0, 0.01]
    Heddle.run { assert_within(1, at_least: 0.01) { assert_equal false, Fiber.scheduler.block(:me, span) } }
  end

  def test_a_scheduler_without_initialize
    blank = Heddle::Scheduler.allocate
    assert_nil blank.backend
    assert_includes assert_raises(ArgumentError) { blank.kernel_sleep(0) }.message, "Heddle::Scheduler.new"
    assert_nil blank.close
  end

  def test_errors_in_conversion_leave_nothing_behind
    strange = Object.new
    def strange.divmod(_) = raise(IOError, "converting")
    def strange.to_f = raise(IOError, "converting")
    Heddle.run do
      before = Fiber.scheduler.statistics.values_at(:timers, :tasks)
      assert_raises(IOError, TypeError) { Fiber.scheduler.block(:me, strange) }
      assert_raises(IOError, TypeError) { Fiber.scheduler.timeout_after(strange, IOError, "late") { flunk } }
      assert_equal before, Fiber.scheduler.statistics.values_at(:timers, :tasks)
      assert_within(1, at_least: 0.005) { sleep(0.005) }
    end
  end

  def test_objects_that_are_not_io
    Heddle.run do
      [nil, 1, "io", Object.new].each do |thing|
        assert_raises(TypeError, NoMethodError) { Fiber.scheduler.io_wait(thing, IO::READABLE, 1) }
        assert_raises(TypeError, NoMethodError) { IO.select([thing], nil, nil, 1) }
      end
      assert_raises(TypeError) { IO.select(1, nil, nil, 1) }
      with_pair { |reader, _| assert_raises(TypeError) { Fiber.scheduler.io_wait(reader, "r", 1) } }
      assert_raises(ArgumentError) { Fiber.scheduler.io_wait }
    end
  end

  def test_objects_that_are_not_fibers
    Heddle.run do
      [nil, 1, Object.new, Fiber.new {}].each { |thing| assert_nil Fiber.scheduler.unblock(:me, thing) }
      assert_equal :fine, Heddle.spawn { sleep(0) && :fine }.value
    end
  end

  def test_sizes_of_pools
    {
      0 => ArgumentError, -1 => ArgumentError, nil => TypeError, 1.5 => TypeError, "2" => TypeError,
      Float::INFINITY => TypeError
    }.each do |size, kind|
      error = assert_raises(kind) { Heddle::FiberPool.new(size) }
      assert_includes error.message, "size"
    end
    {-1 => ArgumentError, 1.5 => TypeError, nil => TypeError}.each do |queue, kind|
      error = assert_raises(kind) { Heddle::FiberPool.new(1, queue: queue) }
      assert_includes error.message, "queue"
    end
    assert_nil Fiber.scheduler
  end

  def test_items_of_pools
    Heddle.run do
      assert_raises(TypeError) { Heddle::FiberPool.new(1).map(1) {} }
      assert_raises(TypeError) { Heddle::FiberPool.new(1).each(nil) {} }
    end
  end

  def test_a_closed_pool
    pool = Heddle::FiberPool.new(1).close
    assert_includes assert_raises(Heddle::PoolClosed) { pool.spawn {} }.message, "closed"
    assert_raises(Heddle::PoolClosed) { pool.map([1]) {} }
    assert_same pool, pool.wait
    assert_same pool, pool.close
  end

  def test_a_closed_scheduler
    in_thread do
      scheduler = Heddle::Scheduler.new
      Fiber.set_scheduler(scheduler)
      Fiber.set_scheduler(nil)
      error = assert_raises(Heddle::SchedulerClosed) { scheduler.block(:me, 1) }
      assert_includes error.message, "Heddle::Scheduler.new"
      assert_nil scheduler.unblock(:me, Fiber.current)
      Fiber.set_scheduler(scheduler)
      assert_raises(Heddle::SchedulerClosed) { Heddle.spawn { flunk } }
      assert_raises(Heddle::SchedulerClosed) { Fiber.schedule { flunk } }
      Fiber.set_scheduler(nil)
    end
  end

  def test_value_of_a_cancelled_task
    Heddle.run do
      task = Heddle.spawn(name: "gone") { sleep }
      waiter = Heddle.spawn { assert_raises(Heddle::TaskCancelled) { task.value } }
      task.cancel
      error = waiter.value
      assert_includes error.message, "gone"
      assert_includes error.message, "cancelled"
      assert_raises(Heddle::TaskCancelled) { task.value }
      assert_nil task.error
    end
  end

  def test_errors_inherit_from_what_a_caller_would_rescue
    assert_operator Heddle::LimitReached, :<, FiberError
    assert_operator Heddle::PoolClosed, :<, ClosedQueueError
    assert_operator Heddle::WrongThread, :<, ThreadError
    [StandardError, Heddle::Error].each { |kind| refute_includes Heddle::Cancellation.ancestors, kind }
    [Heddle::TaskCancelled, Heddle::SchedulerMissing, Heddle::SchedulerClosed,
      Heddle::WrongThread, Heddle::LimitReached, Heddle::BackendUnavailable, Heddle::PoolClosed].each do |error|
      assert_includes error, Heddle::Error
    end
  end

  private

  # Methods that take a span in seconds, each with a wait that continues beside them.
  def in_every_wait(reader)
    Heddle.run do
      beside = Heddle.spawn { sleep(0.02) && :went_on }
      scheduler = Fiber.scheduler
      task = Heddle.spawn { sleep(0.02) }
      yield "io_wait", ->(span) { scheduler.io_wait(reader, IO::READABLE, span) }
      yield "io_select", ->(span) { scheduler.io_select([reader], nil, nil, span) }
      yield "block", ->(span) { scheduler.block(:me, span) }
      yield "kernel_sleep", ->(span) { scheduler.kernel_sleep(span) }
      yield "sleep", ->(span) { sleep(span) }
      yield "timeout_after", ->(span) { scheduler.timeout_after(span, IOError, "late") { flunk } }
      yield "Task#wait", ->(span) { task.wait(span) }
      assert_equal :went_on, beside.value
      task.wait
      assert_equal 0, scheduler.statistics[:timers]
    end
  end
end
