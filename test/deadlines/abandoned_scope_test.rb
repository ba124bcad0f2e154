# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Scopes of a fiber that yields in the middle of them: an Enumerator with a deadline around its elements.
class AbandonedScopeTest < Minitest::Test
  include LoopHelpers

  mode :mixed

  EXCEEDED = Heddle::DeadlineExceeded

  def self.test_both(name, &body)
    define_method("test_#{name}_in_a_thread") { in_thread { instance_exec(&body) } }
    define_method("test_#{name}_in_a_task") { Heddle.run { instance_exec(&body) } }
  end

  test_both(:one_that_is_given_up_halfway_fails_nobody) do
    elements = lines(0.02)
    elements.next
    sleep(0.1)
    assert_nil Heddle.remaining
    assert_equal :value, Heddle.deadline(20) { sleep(0.01) && :value }
    assert_raises(EXCEEDED) { Heddle.deadline(0.02) { sleep(20) } }
    sleep(0.05)
  end

  test_both(:one_that_yields_does_not_bind_others) do
    elements = lines(20)
    elements.next
    assert_nil Heddle.remaining
    Heddle.shield(10) do
      elements.next
      assert_in_delta 10, Heddle.remaining, 5
    end
  end

  test_both(:a_shield_that_yields_hides_nothing) do
    shielded = Enumerator.new { |yielder| Heddle.shield(20) { 3.times { |index| yielder << index } } }
    assert_within(5) do
      assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          shielded.next
          sleep(20)
        end
      end
    end
  end

  # Scopes that nothing came of are used again: by then the one that is left once more may be another block's.
  def test_one_that_a_continuation_leaves_twice
    out = assert_child(<<~RUBY, timeout: 20)
      require "continuation"
      $times = 0
      goes_on = Thread::Queue.new
      Heddle.deadline(10) { callcc { |continuation| $again = continuation } }
      if ($times += 1) == 1
        $other = Thread.new { Heddle.deadline(30) { goes_on.pop && Heddle.remaining } }
        Thread.pass until $other.stop?
      end
      $again.call if $times < 4
      goes_on << true
      print $times, " ", $other.value&.round, " ", Heddle.deadline(20) { Heddle.deadline(5) { Heddle.remaining } }.round
    RUBY
    assert_equal "4 30 5", out
  end

  # On 3.1 the fiber of Enumerator#next is a blocking one: no loop knows of its waits.
  test_both(:one_that_is_resumed_after_its_time_fails_there) do
    failed = nil
    fiber = Fiber.new do
      Heddle.deadline(0.02) do
        Fiber.yield
        sleep(20)
      end
    rescue EXCEEDED
      failed = true
    end
    fiber.resume
    sleep(0.05)
    assert_within(5) { fiber.resume }
    assert failed
  end

  test_both(:one_outside_binds_those_that_it_resumes) do
    assert_within(5) do
      assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          Fiber.new { Fiber.new { sleep(20) }.resume }.resume
        end
      end
    end
  end

  # Nor does it keep the helper, or the fiber, for ever.
  def test_what_nobody_can_leave_is_forgotten
    out = assert_child(<<~RUBY, timeout: 50)
      fibers = ObjectSpace::WeakMap.new
      make = lambda do
        Heddle.deadline(60) do
          50.times do |index|
            elements = Enumerator.new do |yielder|
              fibers[index] = Fiber.current
              Heddle.deadline(0.01) { yielder << 1 << 2 }
            end
            elements.next
          end
        end
      end
      make.call
      100.times { Array.new(100) { [] } }
      alive = -> { GC.start; fibers.values.size }
      limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
      sleep 0.05 while alive.call > 10 && Process.clock_gettime(Process::CLOCK_MONOTONIC) < limit
      puts alive.call <= 10
    RUBY
    assert_equal "true\n", out
  end

  private

  def lines(seconds)
    Enumerator.new { |yielder| Heddle.deadline(seconds) { 3.times { |index| yielder << index } } }
  end
end
