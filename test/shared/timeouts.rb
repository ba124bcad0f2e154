# frozen_string_literal: true

require "support/loop_helpers"
require "timeout"

# What Timeout.timeout does by Ruby's own documents and tests; for Ruby's own timers and for ours, side by side.
# #inside calls a block where the timeouts are tested.
module Shared
  module Timeouts
    include LoopHelpers

    def test_in_time
      inside do
        assert_equal :value, Timeout.timeout(10) { sleep(0.001) && :value }
        assert_equal :value, Timeout.timeout(10, IOError) { :value }
      end
    end

    def test_no_timeout
      inside do
        assert_equal :value, Timeout.timeout(nil) { sleep(0.001) && :value }
        assert_equal :value, Timeout.timeout(0) { sleep(0.001) && :value }
        assert_equal :value, Timeout.timeout(0.0) { :value }
        assert_equal :value, Timeout.timeout(Rational(0)) { sleep(0.001) && :value }
        assert_equal :value, Timeout.timeout(Rational(5, 2)) { sleep(0.001) && :value }
      end
    end

    def test_the_block_gets_the_seconds
      inside do
        assert_equal [10, 2.5, 0], [Timeout.timeout(10) { |seconds| seconds },
          Timeout.timeout(2.5) { |seconds| seconds }, Timeout.timeout(0) { |seconds| seconds }]
        assert_nil Timeout.timeout(nil) { |seconds| seconds }
      end
    end

    def test_a_block_that_is_late
      error = assert_within(1, at_least: 0.01) {
        assert_raises(Timeout::Error) { inside { Timeout.timeout(0.02) { sleep(20) } } }
      }
      assert_equal "execution expired", error.message
      assert_instance_of Timeout::Error, error
      assert error.backtrace.any? { |line| line.include?(File.basename(__FILE__)) }
    end

    def test_a_class_and_a_message
      late = Class.new(StandardError)
      assert_equal "execution expired", assert_raises(late) { inside { Timeout.timeout(0.01, late) { sleep } } }.message
      assert_equal "too late",
        assert_raises(late) { inside { Timeout.timeout(0.01, late, "too late") { sleep } } }.message
      assert_equal "too late",
        assert_raises(Timeout::Error) { inside { Timeout.timeout(0.01, nil, "too late") { sleep } } }.message
    end

    def test_a_class_that_is_no_standard_error
      late = Class.new(Exception) # standard:disable Lint/InheritException
      assert_raises(late) { inside { Timeout.timeout(0.01, late) { sleep } } }
    end

    def test_without_a_class_it_cannot_be_rescued_inside
      rescued = []
      assert_raises(Timeout::Error) do
        inside do
          Timeout.timeout(0.02) do
            begin
              sleep
            rescue => error
              rescued << error
            end
            sleep
          rescue Timeout::Error => error
            rescued << error
          end
        end
      end
      assert_equal [], rescued
    end

    def test_with_a_class_it_can_be_rescued_inside_and_is_raised_once
      inside do
        result = Timeout.timeout(0.02, IOError) do
          sleep
        rescue IOError
          sleep(0.05)
          :rescued
        end
        assert_equal :rescued, result
      end
    end

    def test_ensure_may_wait
      steps = []
      assert_raises(Timeout::Error) do
        inside do
          Timeout.timeout(0.02) do
            sleep
          ensure
            sleep(0.03)
            steps << :ensured
          end
        end
      end
      assert_equal [:ensured], steps
    end

    def test_nested
      outer, inner = Class.new(StandardError), Class.new(StandardError)
      inside do
        assert_raises(inner) { Timeout.timeout(10, outer) { Timeout.timeout(0.02, inner) { sleep } } }
        assert_raises(outer) { Timeout.timeout(0.02, outer) { Timeout.timeout(10, inner) { sleep } } }
        assert_raises(outer) { Timeout.timeout(0.02, outer) { Timeout.timeout(10) { sleep } } }
        assert_raises(Timeout::Error) { Timeout.timeout(0.02) { Timeout.timeout(10, inner) { sleep } } }
      end
    end

    def test_the_outer_timeout_is_not_mistaken_for_the_inner
      reached = []
      inside do
        assert_raises(Timeout::Error) do
          Timeout.timeout(0.02) do
            Timeout.timeout(10) { sleep }
          rescue Timeout::Error
            reached << :between
          end
        end
      end
      assert_equal [], reached
    end

    def test_the_inner_timeout_can_be_rescued_between_the_two
      inside do
        result = Timeout.timeout(10) do
          Timeout.timeout(0.02) { sleep }
        rescue Timeout::Error
          sleep(0.001)
          :between
        end
        assert_equal :between, result
      end
    end

    def test_an_exception_of_the_block_passes_through
      inside do
        assert_raises(IOError) { Timeout.timeout(10) { raise IOError } }
        assert_raises(Timeout::Error) { Timeout.timeout(10) { raise Timeout::Error, "its own" } }
        assert_equal :thrown, catch(:out) { Timeout.timeout(10) { throw :out, :thrown } }
        assert_equal(:broken, Timeout.timeout(10) { break :broken })
      end
    end

    def test_nothing_fires_afterwards
      inside do
        200.times do |index|
          Timeout.timeout(0.0005) { sleep(0.0002 + index * 0.000003) }
        rescue Timeout::Error
          nil
        end
        sleep(0.01)
      end
    end

    def test_a_program_that_includes_timeout
      object = Object.new.extend(Timeout)
      assert_raises(Timeout::Error) { inside { object.send(:timeout, 0.02) { sleep } } }
    end

    def test_negative_seconds
      assert_raises(ArgumentError) { inside { Timeout.timeout(-1) { sleep(0.2) } } } if refuses_negative?
    end

    def test_in_many_places_at_once
      inside do
        outcomes = Array.new(20) do |index|
          concurrently do
            Timeout.timeout(index.even? ? 0.03 : 20) { sleep(index.even? ? 20 : 0.03) && :slept }
          rescue Timeout::Error
            :late
          end
        end.map(&:value)
        assert_equal %i[late slept] * 10, outcomes
      end
    end

    private

    # timeout >= 0.4.2; the oldest raises the class in the block.
    def refuses_negative? = true

    def concurrently(&block) = Thread.new(&block)
  end
end
