# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# The public API inside of Heddle.run and outside of any scheduler, on the main thread and on another one: the same
# values, the same errors, the same deadlines.
class SameApiTest < Minitest::Test
  include LoopHelpers

  # What is done, and its outcome: a value, or the class of an error.
  CALLS = {
    "run" => [-> { Heddle.run { Heddle.spawn { sleep(0.001) && :inside }.value } }, :inside],
    "an error out of run" => [-> { Heddle.run { raise IOError } }, IOError],
    "an error of a task" => [-> { Heddle.run { Heddle.spawn { sleep(0.001) && raise(IOError) }.value } }, IOError],
    "a cancelled task" => [-> { Heddle.run { Heddle.spawn { sleep }.cancel.tap(&:wait).value } },
      Heddle::TaskCancelled],
    "a value once its run is over" => [-> { Heddle.run { Heddle.spawn { 7 } }.value }, 7],
    "map in a pool" => [-> { Heddle::FiberPool.new(2).map(1..3) { |item| sleep(0.001) && item * 2 } }, [2, 4, 6]],
    "an error in a pool" =>
      [-> { Heddle::FiberPool.new(2).map(1..3) { |item| sleep(0.001) && raise(IOError) if item == 2 } }, IOError],
    "each in a pool" =>
      [-> { [].tap { |seen| Heddle::FiberPool.new(2).each(1..3) { |item| sleep(0.001) && seen << item } } }, [1, 2, 3]],
    "spawn in a pool" =>
      [-> { Heddle::FiberPool.new(2).then { |pool| pool.spawn { sleep(0.001) && 5 }.tap { pool.close }.value } }, 5],
    "a closed pool" => [-> { Heddle::FiberPool.new(1).close.spawn {} }, Heddle::PoolClosed],
    "map" => [-> { Heddle.map(1..3, fibers: 2) { |item| sleep(0.001) && item + 1 } }, [2, 3, 4]],
    "map over processes" => [-> { Heddle.map(1..3, fibers: 2, processes: 2) { |item| sleep(0.001) && item + 1 } },
      [2, 3, 4]],
    "an error of map" => [-> { Heddle.map(1..3, processes: 2) { raise IOError } }, IOError],
    "a stream" => [-> { Heddle::Processes.new(2).stream(1..4) { |item| item * 3 }.first(2) }, [3, 6]],
    "offload" => [-> { Heddle.offload { sleep(0.001) && 8 } }, 8],
    "an error of offload" => [-> { Heddle.offload { raise IOError } }, IOError],
    "a deadline kept" => [-> { Heddle.deadline(10) { sleep(0.001) && 9 } }, 9],
    "a deadline over a sleep" => [-> { Heddle.deadline(0.02) { sleep } }, Heddle::DeadlineExceeded],
    "a deadline over a read" => [-> { IO.pipe.then { |reader, _writer| Heddle.deadline(0.02) { reader.read(1) } } },
      Heddle::DeadlineExceeded],
    "a deadline over a queue" => [-> { Heddle.deadline(0.02) { Thread::Queue.new.pop } }, Heddle::DeadlineExceeded],
    "a deadline over a pool" => [-> { Heddle.deadline(0.02) { Heddle::FiberPool.new(2).map(1..3) { sleep } } },
      Heddle::DeadlineExceeded],
    "a deadline over map" => [-> { Heddle.deadline(0.05) { Heddle.map(1..3, processes: 2) { sleep } } },
      Heddle::DeadlineExceeded],
    "a deadline over run" => [-> { Heddle.deadline(0.02) { Heddle.run { Heddle.spawn { sleep }.value } } },
      Heddle::DeadlineExceeded],
    "the earlier deadline" => [-> { Heddle.deadline(0.02) { Heddle.deadline(10) { sleep } } },
      Heddle::DeadlineExceeded],
    "a deadline that was rescued" => [-> { Heddle.deadline(0.02) { rescued { sleep } } }, Heddle::DeadlineExceeded],
    "the time that is left" => [-> { [Heddle.remaining, Heddle.deadline(10) { Heddle.remaining.between?(0, 10) }] },
      [nil, true]],
    "a shield" => [-> { Heddle.deadline(10) { Heddle.shield(20) { Heddle.remaining > 11 } } }, true],
    "the end of a shield" => [-> { Heddle.shield(0.02) { sleep } }, Heddle::DeadlineExceeded],
    "no block for run" => [-> { Heddle.run }, ArgumentError],
    "no block for map" => [-> { Heddle.map([]) }, ArgumentError],
    "no block for offload" => [-> { Heddle.offload }, ArgumentError],
    "a negative deadline" => [-> { Heddle.deadline(-1) {} }, ArgumentError]
  }.freeze

  CALLS.each do |name, (call, expected)|
    define_method(:"test_#{name.tr(" ", "_")}") do
      places = {
        run: -> { Heddle.run { outcome(&call) } },
        blocking: -> { outcome(&call) },
        thread: -> { in_thread { outcome(&call) } }
      }
      assert_equal places.transform_values { expected }, places.transform_values(&:call)
    end
  end

  # A task needs a scheduler; everything else works without one.
  def test_methods_that_need_a_scheduler_say_so
    assert_match(/Heddle\.run/, assert_raises(Heddle::SchedulerMissing) { Heddle.spawn {} }.message)
    assert_nil Heddle::Task.current
    assert_nil Heddle.stats
  end

  def test_a_tasks_value_from_a_plain_thread
    Heddle.run do
      task = Heddle.spawn { sleep(0.01) && :value }
      failing = Heddle.spawn { sleep(0.01) && raise(IOError) }
      thread = Thread.new { [task.value, outcome { failing.value }, task.wait(1).equal?(task)] }
      assert_equal [:value, IOError, true], thread.value
    end
  end

  def test_a_deadline_over_a_tasks_value_in_a_plain_thread
    Heddle.run do
      task = Heddle.spawn { sleep }
      assert_equal Heddle::DeadlineExceeded, Thread.new { outcome { Heddle.deadline(0.02) { task.value } } }.value
      assert_equal :waiting, task.status
      task.cancel
    end
  end

  def self.rescued
    yield
  rescue Timeout::Error
    nil
  end

  private

  def outcome
    yield
  rescue => error
    error.class
  end
end
