# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one

# Another thread's exception (Thread#raise, a Timeout) interrupts FiberPool#spawn, at each moment at which Ruby lets one
# in. The interrupted thread has no task, or one that runs or waits in the queue; the pool has all its places again.
class InterruptedPoolTest < Minitest::Test
  include LoopHelpers

  mode :thread

  Interrupted = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[line call return c_call c_return b_call b_return].freeze
  # Ruby's own instructions perform these, and check for no interrupt; a TracePoint sees calls.
  OPERATORS = %i[+ < ! == []].freeze

  # What the pool is doing already, for each way that a task may take.
  WAYS = {
    "a free place" => {queue: 1, busy: 0},
    "a place in the queue" => {queue: 1, busy: 1},
    "a turn for a place in the queue" => {queue: 1, busy: 2},
    "a turn for a place" => {queue: 0, busy: 1}
  }.freeze

  WAYS.each do |name, way|
    define_method("test_#{name.tr(" ", "_")}") do
      in_thread do
        Fiber.set_scheduler(Heddle::Scheduler.new) # spawns at the thread's root
        assert_no_place_is_lost(**way)
      end
    end
  end

  # A full queue makes the spawn a run.
  [0, 2].each do |busy|
    define_method("test_outside_of_any_run_with_#{busy}_blocks_in_the_queue") do
      in_thread { assert_no_place_is_lost(queue: 1, busy: busy) }
    end
  end

  # Signals may come faster than a call ends.
  def test_the_end_of_a_task
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      pool = Heddle::FiberPool.new(1)
      left = 9
      trace = TracePoint.new(:call) do |point|
        raise Interrupted if point.method_id == :pass_on_place && (left -= 1) >= 0
      end
      assert_raises(Interrupted) do
        trace.enable(target_thread: Thread.current) { pool.spawn {} && pool.wait }
      end
      assert_equal({}, pool.instance_variable_get(:@running))
      assert_equal 1, pool.spawn { 1 }.value
    end
  end

  # Its caller may be another thread than the loop's, which ends its tasks.
  def test_a_task_that_is_cancelled_before_its_start
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      pool = Heddle::FiberPool.new(1)
      trace = TracePoint.new(:c_return) do |point|
        trace.disable && pool.instance_variable_get(:@scheduler).tasks.each(&:cancel) if point.method_id == :enlist
      end
      task = trace.enable(target_thread: Thread.current) { pool.spawn { flunk } }
      assert_equal :cancelled, task.status
      assert_equal 1, pool.spawn { 1 }.value
    end
  end

  private

  def assert_no_place_is_lost(**way)
    moment = 0
    moment += 1 while interrupt(moment + 1, **way)
    assert_operator moment, :>, 20
  end

  # False when the spawn was over before that moment.
  def interrupt(moment, queue:, busy:)
    pool = Heddle::FiberPool.new(1, queue: queue)
    busy.times { pool.spawn { sleep(0.0005) } }
    where = spawn_interrupted_at(moment, pool)
    assert_same pool, pool.wait(1)
    left = [pool.instance_variable_get(:@running), pool.instance_variable_get(:@admission).available]
    assert_equal [{}, 1], left, "after the moment #{moment}, #{where}"
    assert_empty Fiber.scheduler&.tasks.to_a,
      "tasks that nothing can start, after the moment #{moment}, #{where}: the loop waits for them"
    assert_equal 3, Array.new(3) { pool.spawn { 1 } }.sum(&:value)
    where
  end

  def spawn_interrupted_at(moment, pool)
    seen, where, root = 0, nil, Fiber.current
    trace = TracePoint.new(*EVENTS) do |point|
      unless point.path&.end_with?("fiber_pool.rb") && root.equal?(Fiber.current) &&
          !OPERATORS.include?(point.method_id)
        next
      end
      next unless (seen += 1) == moment

      where = [point.event, point.lineno, point.method_id].inspect
      raise Interrupted
    end
    trace.enable(target_thread: Thread.current) { pool.spawn { sleep(0.0002) } }
    where
  rescue Interrupted
    where
  end
end
