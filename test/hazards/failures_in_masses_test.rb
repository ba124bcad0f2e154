# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A server's run lasts for months: it must not keep failures until its end.
class FailuresInMassesTest < Minitest::Test
  include LoopHelpers

  class Marked < StandardError; end

  # Of 2000: a run keeps its first unclaimed failures, and stacks of idle fibers may still point at others. With ten
  # times as many failures it is as many.
  KEPT = 500

  def test_claimed_failures_are_forgotten
    Heddle.run do
      2000.times { assert_raises(Marked) { Heddle.spawn { sleep(0) && raise(Marked) }.value } }
      GC.start
      assert_operator ObjectSpace.each_object(Marked).count, :<, KEPT
    end
  end

  def test_not_all_unclaimed_failures_are_kept
    silently do
      error = assert_raises(Marked) do
        Heddle.run do
          2000.times { |index| Heddle.spawn { raise Marked, index.to_s } }
          GC.start
          assert_operator ObjectSpace.each_object(Marked).count, :<, KEPT
        end
      end
      assert_equal "0", error.message
    end
  end

  # The first that nobody has asked for by then.
  def test_the_first_unclaimed_is_raised_after_many_claimed
    silently do
      error = assert_raises(Marked) do
        Heddle.run do
          100.times { |index| assert_raises(Marked) { Heddle.spawn { raise Marked, index.to_s }.value } }
          Heddle.spawn { raise Marked, "unclaimed" }
          100.times { |index| assert_raises(Marked) { Heddle.spawn { raise Marked, index.to_s }.value } }
        end
      end
      assert_equal "unclaimed", error.message
    end
  end

  def test_failures_in_a_pool_outside_of_any_run
    silently do
      pool = Heddle::FiberPool.new(10, queue: 2000)
      2000.times { |index| pool.spawn { raise Marked, index.to_s } }
      left = pool.spawn { GC.start.nil? && ObjectSpace.each_object(Marked).count }
      assert_equal "0", assert_raises(Marked) { pool.close }.message
      assert_operator left.value, :<, KEPT
    end
  end

  private

  # Each failure is reported, as failures of threads are.
  def silently
    in_thread do
      Thread.current.report_on_exception = false
      yield
    end
  end
end
