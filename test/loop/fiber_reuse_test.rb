# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit]

# Heddle.spawn and pools reuse their fibers. A task must not find state of the previous task there.
class FiberReuseTest < Minitest::Test
  include LoopHelpers

  def test_the_fiber_is_reused
    Heddle.run do
      first = Heddle.spawn { Fiber.current }.value
      second = Heddle.spawn { Fiber.current }.value
      assert_same first, second
      assert_operator Fiber.scheduler.statistics[:reused], :>=, 1
    end
  end

  # An idle fiber must not keep the last result that it made. A few may stay: Ruby searches the stacks of fibers for
  # whatever looks like an object.
  def test_results_are_gone
    kind, go_on = Class.new, Thread::Queue.new
    Heddle.run do
      Array.new(200) { Heddle.spawn { go_on.pop && kind.new } }.each { go_on << true }.each(&:value)
      Heddle.spawn { sleep(0) }.value
      GC.start
      assert_operator Fiber.scheduler.statistics[:idle], :>=, 100
      assert_operator ObjectSpace.each_object(kind).count, :<, 20
    end
  end

  def test_fiber_locals_are_gone
    Heddle.run do
      leave = -> { Thread.current[:request] = "secret" }
      look = -> { [Thread.current[:request], Thread.current.key?(:request), Fiber.current] }
      _, _, first = Heddle.spawn { leave.call && look.call }.value
      value, known, second = Heddle.spawn(&look).value
      assert_same first, second
      assert_equal [nil, false], [value, known]
    end
  end

  def test_instance_variables_are_gone
    Heddle.run do
      first = Heddle.spawn { Fiber.current.tap { |fiber| fiber.instance_variable_set(:@state, "secret") } }.value
      second, variables = Heddle.spawn { [Fiber.current, Fiber.current.instance_variables] }.value
      assert_same first, second
      assert_empty variables
    end
  end

  # An accessor on Fiber defines the state, as ActiveSupport does.
  def test_state_behind_an_accessor_is_gone
    Fiber.attr_accessor :heddle_test_state
    Heddle.run do
      Heddle.spawn { Fiber.current.heddle_test_state = {a: 1} }
      assert_nil Heddle.spawn { Fiber.current.heddle_test_state }.value
    end
  ensure
    Fiber.undef_method(:heddle_test_state)
    Fiber.undef_method(:heddle_test_state=)
  end

  def test_thread_variables_stay
    Heddle.run do
      Heddle.spawn { Thread.current.thread_variable_set(:heddle_test, 1) }
      assert_equal 1, Heddle.spawn { Thread.current.thread_variable_get(:heddle_test) }.value
    end
  ensure
    Thread.current.thread_variable_set(:heddle_test, nil)
  end

  def test_storage_is_a_copy_of_the_spawners
    skip "fibers have had a storage since Ruby 3.2" unless ruby_at_least?("3.2")
    Heddle.run do
      2.times do |round|
        Fiber[:who] = "spawner #{round}"
        first = Heddle.spawn do
          got = Fiber[:who]
          Fiber[:who] = "changed"
          Fiber[:left] = "behind"
          [got, Fiber.current]
        end.value
        second = Heddle.spawn { [Fiber[:who], Fiber[:left], Fiber.current] }.value
        assert_equal ["spawner #{round}", "spawner #{round}", nil], [first[0], second[0], second[1]]
        assert_same first[1], second[2]
        assert_equal "spawner #{round}", Fiber[:who]
      end
    end
  end

  def test_storage_of_a_spawner_without_any
    skip "fibers have had a storage since Ruby 3.2" unless ruby_at_least?("3.2")
    Heddle.run do
      Heddle.spawn { Fiber[:left] = "behind" }
      assert_nil Heddle.spawn { Fiber[:left] }.value
    end
  end

  def test_storage_in_a_pool_is_the_spawners
    skip "fibers have had a storage since Ruby 3.2" unless ruby_at_least?("3.2")
    Heddle.run do
      pool = Heddle::FiberPool.new(1, queue: 10)
      tasks = Array.new(5) do |index|
        Fiber[:index] = index
        pool.spawn { sleep(0.001) && Fiber[:index] }
      end
      assert_equal [*0...5], tasks.map(&:value)
    end
  end

  def test_storage_causes_no_warning
    assert_empty in_child("Heddle.run { 3.times { Heddle.spawn { Thread.current[:a] = 1 } } }",
      launcher: ["env", "RUBYOPT=-W:experimental"]).err
  end

  def test_an_exception_leaves_nothing_to_the_next_task
    stderr_of do
      assert_raises(IOError) do
        Heddle.run do
          Heddle.spawn { raise IOError, "before" }
          assert_nil Heddle.spawn { $! }.value
        end
      end
    end
  end

  # Ruby cannot list the locks of a fiber: doc/limits.md.
  def test_a_mutex_that_the_last_task_left_locked
    mutex = Thread::Mutex.new
    Heddle.run do
      first = Heddle.spawn { mutex.lock && Fiber.current }.value
      assert_predicate mutex, :locked?
      # Ruby takes the next task of that fiber for the owner …
      second = Heddle.spawn { [Fiber.current, mutex.owned?, assert_raises(ThreadError) { mutex.lock }.class] }.value
      assert_equal [first, true, ThreadError], second
      # … so that it may unlock the Mutex; others cannot.
      assert_raises(ThreadError) { mutex.unlock }
      assert_nil assert_within(1, remeasure: 0) {
        Heddle.spawn { sleep(0) }.wait && Heddle.spawn { mutex.unlock }.wait && nil
      }
      refute_predicate mutex, :locked?
    end
  end

  def test_a_mutex_left_locked_by_a_fiber_that_is_not_reused
    mutex = Thread::Mutex.new
    Heddle.run do
      Fiber.schedule { mutex.lock }
      # A dead fiber's lock stays locked while its thread lives, as in any Ruby program.
      assert_predicate mutex, :locked?
      refute mutex.try_lock
    end
  end

  def test_retire_if_decides_which_fibers_are_not_reused
    wanted = []
    retired = []
    Heddle::FiberPool.retire_if do |fiber|
      retired << fiber if wanted.include?(Fiber.current) && fiber.equal?(Fiber.current)
    end
    Heddle.run do
      first = Heddle.spawn { Fiber.current }.value
      second = Heddle.spawn { (wanted << Fiber.current) && Fiber.current }.value
      assert_same first, second
      third = Heddle.spawn { Fiber.current }.value
      refute_same second, third
      assert_equal [second], retired
      refute_predicate second, :alive?
      assert_same third, Heddle.spawn { Fiber.current }.value
    end
  end

  def test_a_retire_if_that_raises_retires_the_fiber_and_reports_it
    out = in_child(<<~RUBY)
      Heddle::FiberPool.retire_if { |fiber| raise IOError, "cannot tell" if $on }
      Heddle.run do
        first = Heddle.spawn { Fiber.current }.value
        $on = true
        Heddle.spawn {}
        $on = false
        second = Heddle.spawn { Fiber.current }.value
        puts first.equal?(second)
      end
    RUBY
    assert_equal "false\n", out.out
    assert_includes out.err, "cannot tell"
  end

  def test_a_successor_in_a_pool_whose_fiber_is_retired
    retire = true
    Heddle::FiberPool.retire_if { retire }
    Heddle.run do
      pool = Heddle::FiberPool.new(1, queue: 10)
      fibers = Array.new(4) { pool.spawn { sleep(0) && Fiber.current } }.map(&:value)
      assert_equal 4, fibers.uniq.size
      assert_equal({size: 1, running: 0, queued: 0, spawned: 4}, pool.wait.statistics)
    end
  ensure
    retire = false
  end
end
