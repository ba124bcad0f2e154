# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on backends: :one, except: %i[portable]

# After a switch, fiber_switch in Ruby's cont.c looks at the fiber that it had switched to, to which it keeps only a
# pointer: if that fiber has ended and was collected meanwhile, it frees a stack twice.
class EndedFibersTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  # malloc fills freed memory with ones, so that the remains of a collected fiber are not taken for a fiber.
  FREED_IS_GARBAGE = {"MALLOC_PERTURB_" => "255", "GLIBC_TUNABLES" => "glibc.malloc.tcache_count=0"}.freeze

  # Only the starter parks, so that the starter dispatches the fiber that it has started.
  def test_an_ended_fiber_lives_until_control_returns_to_its_enterer
    left = assert_child(<<~RUBY, env: FREED_IS_GARBAGE)
      STARTED = ObjectSpace::WeakMap.new
      GATE = Queue.new

      # Methods of their own, so that no slot of a stack keeps the fiber.
      def start(index, go, over)
        STARTED[Fiber.schedule { go.pop && over << true }] = index
        nil
      end

      def starter(index, over, turn)
        go = Queue.new
        turn.pop # until the main task waits for the end
        start(index, go, over)
        go << true
        GATE.pop
      end

      Heddle.run do
        30.times do |index|
          over, turn = Queue.new, Queue.new
          Heddle.spawn { starter(index, over, turn) }
          turn << true
          over.pop
        end
        4.times { GC.start }
        puts STARTED.size
        30.times { GATE << true }
      end
    RUBY
    assert_equal 30, left.to_i, "ended fibers that others will come back from"
  end

  def test_many_fibers_that_end_during_collections
    assert_child(<<~RUBY, env: FREED_IS_GARBAGE)
      ended = 0
      ending = ->(index) { sleep(0.01 + (index % 100) / 1000.0) && (ended += 1) % 50 == 0 && GC.start }
      Heddle.run { 1_000.times { |index| Fiber.schedule { ending.(index) } } }
    RUBY
  end

  WAYS = {
    "a sleep" => "Fiber.schedule { sleep(rand / 500) }",
    "a turn" => "Fiber.schedule { sleep(0) }",
    "nothing" => "Fiber.schedule { 1 }",
    "a descriptor" => "Fiber.schedule { r, w = IO.pipe; Fiber.schedule { sleep(0.001); w.close }; r.read; r.close }",
    "an exception" => <<~RUBY,
      fiber = Fiber.schedule do
        sleep(9)
      rescue IOError
        sleep(0)
      end
      Fiber.scheduler.raise_in(fiber, IOError.new("over"))
    RUBY
    "a resume" => "Fiber.schedule { Fiber.new { sleep(0.001) }.resume }"
  }.freeze

  WAYS.each do |name, code|
    define_method("test_fibers_that_end_after_#{name.tr(" ", "_")}_under_gc_stress") do
      assert_child(<<~RUBY, env: FREED_IS_GARBAGE, timeout: 60)
        Heddle.run do
          starters = Array.new(12) { Heddle.spawn { 3.times { #{code}; sleep(rand / 1000) } } }
          GC.stress = true
          sleep(0.01)
          starters += Array.new(4) { Heddle.spawn { 2.times { #{code}; sleep(rand / 1000) } } }
          starters.each(&:value)
          GC.stress = false
        end
      RUBY
    end
  end
end
