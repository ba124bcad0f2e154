# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[yjit]

# After a collection the current fiber has to run Ruby's finalizers; while they are pending Ruby refuses to release
# the GVL, and a loop that only checks for interrupts would spin.
class FinalizersTest < Minitest::Test
  include LoopHelpers

  # With one thread, as it was first seen; in a process of its own, since test runners have several threads.
  def test_the_loop_sleeps_after_a_collection_in_a_fiber_that_ended
    out = assert_child(<<~RUBY, timeout: 20)
      finalized = 0
      reader, writer = UNIXSocket.pair
      Heddle.run do
        1000.times do |index|
          Heddle.spawn do
            10.times { ObjectSpace.define_finalizer(Object.new, proc { finalized += 1 }) }
            GC.start(full_mark: index % 10 == 0, immediate_sweep: true) if index % 10 == 0
          end
          Heddle.spawn { reader.readpartial(1) }.tap { writer.write("x") }.value
        end
        spun = Fiber.scheduler.statistics[:polls]
        Thread.pass
        sleep(0.1)
        puts Fiber.scheduler.statistics[:polls] - spun < 100, finalized > 0
      end
    RUBY
    assert_equal %w[true true], out.split
  end

  def test_a_finalizer_may_wait
    seen = []
    Heddle.run do
      make = ->(number) { ObjectSpace.define_finalizer(Object.new, proc { seen << number if sleep(0) }) }
      Heddle.spawn { 100.times(&make) }
      Array.new(1000) { Object.new }
      # Objects that a register or a stack still points at survive a collection.
      wait_until { GC.start || seen.size > 50 }
    end
  end
end
