# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# What a task allocates has to be collected, and each collection marks the stacks of all fibers that wait.
class AllocationsTest < Minitest::Test
  include LoopHelpers

  COUNT = 1000

  def test_a_fresh_fiber_comes_with_its_task_and_the_callers_block_alone
    Heddle.run do
      each = allocated { COUNT.times { Fiber.schedule { nil } } }
      assert_operator each, :<, 4.5 # the fiber, the task, the block's Proc with its environment
    end
  end

  def test_a_fiber_that_is_used_again_comes_without_a_new_one
    Heddle.run do
      each = allocated { COUNT.times { Heddle.spawn { nil } } }
      assert_operator each, :<, 4.5 # the task, the Proc, its environment, the names of what the task before left behind
    end
  end

  private

  # Objects for each of COUNT.
  def allocated
    yield
    before = GC.stat(:total_allocated_objects)
    yield
    (GC.stat(:total_allocated_objects) - before) / COUNT.to_f
  end
end
