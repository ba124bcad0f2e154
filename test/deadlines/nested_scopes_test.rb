# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

runs_on also: %i[yjit]

# Very many nested scopes. The counts must grow with their number, not with its square.
class NestedScopesTest < Minitest::Test
  include LoopHelpers

  mode :mixed

  FEW, MANY = 75, 300 # more do not fit onto the stack of a fiber

  # 2,000 took half a minute to unwind: the helper checked each again and again, and asked Ruby for each scope around
  # it.
  def test_ever_shorter_nested_deadlines_in_a_thread
    out = assert_child(<<~RUBY, env: {"RUBY_THREAD_VM_STACK_SIZE" => "20000000"}, timeout: 50)
      def nest(count) = count.zero? ? sleep : Heddle.deadline(0.1 + count * 0.00005) { nest(count - 1) }
      [400, 1_600].each do |count|
        calls = 0
        TracePoint.new(:c_call) { calls += 1 }.enable do
          nest(count)
        rescue Heddle::DeadlineExceeded
          puts calls
        end
      end
    RUBY
    few, many = out.lines.map(&:to_i)
    assert_operator many, :<, few * 4 * 3
  end

  def test_ever_shorter_nested_deadlines_in_a_task
    few, many = [FEW, MANY].map { |count| calls_while { Heddle.run { assert_nested_fails(count) } } }
    assert_operator many, :<, few * MANY / FEW * 3
  end

  # As many errors as there are scopes, each the cause of the next, each with a whole backtrace.
  def test_outer_scopes_pass_the_error_on_unchanged
    [->(&block) { in_thread(&block) }, ->(&block) { Heddle.run(&block) }].each do |inside|
      error = inside.call { assert_nested_fails(MANY) }
      causes = 0
      causes += 1 while (error = error.cause)
      assert_operator causes, :<, MANY / 3 # the helper may have sent some before the thread ran
    end
  end

  # A scope that has failed a wait itself raises its own error.
  def test_a_scope_that_has_failed_a_wait_raises_its_own_error
    error = assert_raises(Heddle::DeadlineExceeded) do
      Heddle.run { Heddle.deadline(0.01) { rescued { sleep } && Heddle.shield(0.01) { sleep } } }
    end
    assert_includes error.message, "Heddle.deadline(0.01)"
    assert_includes error.cause.message, "Heddle.shield(0.01)"
  end

  # A wait asks only the innermost scope, where no deadline has passed.
  def test_waits_inside_of_many_scopes
    few, many = [FEW, MANY].map do |count|
      Heddle.run { nest(count, ->(_) { 30 }) { calls_while { 100.times { sleep(0) } } } }
    end
    assert_operator many, :<=, few + 50
  end

  # Three cases: an outer deadline has passed and the inner ones have not; each is a shield; a timeout was raised once.
  def test_the_deadline_that_passed_is_raised_among_many
    [->(&block) { in_thread(&block) }, ->(&block) { Heddle.run(&block) }].each do |inside|
      inside.call do
        error = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { nest(50, ->(_) { 30 }) { sleep } } }
        assert_includes error.message, "Heddle.deadline(0.02)"
        seen = []
        error = assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.01) do
            Heddle.shield(20) { sleep(0.03) && seen << :shielded }
            sleep
          ensure
            seen << :left
          end
        end
        assert_equal [%i[shielded left], true], [seen, error.message.include?("Heddle.deadline(0.01)")]
      end
    end
  end

  def test_a_timeout_that_was_rescued_leaves_the_deadline_inside
    require "heddle/timeout"
    [->(&block) { in_thread(&block) }, ->(&block) { Heddle.run(&block) }].each do |inside|
      seen = []
      assert_within(5, remeasure: 0) do
        inside.call do
          Timeout.timeout(0.01, IOError) do
            Heddle.deadline(0.04) { 4.times { seen << rescued { sleep }.class } }
          rescue Heddle::DeadlineExceeded
            nil
          end
        end
      end
      assert_equal [IOError] + [Heddle::DeadlineExceeded] * 3, seen
    end
  ensure
    Heddle::TimeoutSupport.disable
  end

  private

  def nest(count, seconds, &block)
    return yield if count.zero?

    Heddle.deadline(seconds.call(count)) { nest(count - 1, seconds, &block) }
  end

  def assert_nested_fails(count)
    assert_raises(Heddle::DeadlineExceeded) { nest(count, ->(number) { 0.05 + number * 0.0001 }) { sleep } }
  end

  def rescued
    yield
  rescue Timeout::Error, IOError => error
    error
  end

  # How many methods were called meanwhile, in all threads.
  def calls_while(&block)
    calls = 0
    TracePoint.new(:c_call, :call) { calls += 1 }.enable(target_thread: nil, &block)
    calls
  end
end
