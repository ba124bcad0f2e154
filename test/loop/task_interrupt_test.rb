# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Task#interrupt: an exception of the caller's choice instead of a cancellation.
class TaskInterruptTest < Minitest::Test
  include LoopHelpers

  class Stop < Interrupt; end

  def test_raises_in_the_wait_and_the_task_continues
    Heddle.run do
      task = Heddle.spawn do
        sleep
      rescue Stop => error
        sleep 0.01
        [error.message, :went_on]
      end
      task.interrupt(Stop.new("now"))
      assert_equal ["now", :went_on], task.value
      assert_equal :completed, task.status
    end
  end

  def test_waits_for_the_end_of_a_shield
    Heddle.run do
      steps = []
      task = Heddle.spawn do
        Heddle.shield(5) { sleep(0.05) && steps << :shielded }
        sleep
      rescue Stop
        steps << :interrupted
      end
      task.interrupt(Stop.new)
      task.wait
      assert_equal %i[shielded interrupted], steps
    end
  end

  def test_from_another_thread
    Heddle.run do
      task = Heddle.spawn do
        sleep
      rescue Stop
        :interrupted
      end
      Thread.new { task.interrupt(Stop.new) }.join
      assert_equal :interrupted, task.value
    end
  end

  def test_a_task_can_be_interrupted_again_and_then_cancelled
    Heddle.run do
      times = 0
      task = Heddle.spawn do
        sleep
      rescue Stop
        times += 1
        retry
      end
      2.times do
        task.interrupt(Stop.new)
        sleep 0
      end
      task.interrupt(Stop.new).cancel # the cancellation replaces it
      task.wait
      assert_equal [2, :cancelled], [times, task.status]
    end
  end

  def test_the_exception_survives_collections_until_it_is_raised
    Heddle.run do
      task = Heddle.spawn do
        Heddle.shield(5) { sleep(0.05) }
        sleep
      rescue Stop => error
        error.message
      end
      task.interrupt(Stop.new(+"kept"))
      3.times { GC.start }
      GC.compact if GC.respond_to?(:compact)
      assert_equal "kept", task.value
    end
  end

  def test_only_exceptions
    Heddle.run do
      task = Heddle.spawn { sleep(0.01) }
      error = assert_raises(TypeError) { task.interrupt(Stop) }
      assert_match(/raises an exception/, error.message)
      task.wait
      assert_same task, task.interrupt(Stop.new), "an ended task"
    end
  end
end
