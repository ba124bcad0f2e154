# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# The GC has to collect what a task allocates, and each collection marks the stacks of all fibers that wait.
class AllocationsTest < Minitest::Test
  include LoopHelpers

  COUNT = 1000

  def test_a_new_fiber_allocates_only_its_task_and_the_block
    Heddle.run do
      each = allocated { COUNT.times { Fiber.schedule { nil } } }
      assert_operator each, :<, 4.5 # the fiber, the task, the block's Proc with its environment
    end
  end

  def test_a_reused_fiber_allocates_no_fiber
    Heddle.run do
      each = allocated { COUNT.times { Heddle.spawn { nil } } }
      # the task, the Proc, its environment, the names of what the previous task left behind
      assert_operator each, :<, 4.5
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
