# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/hosts"

# Deadlines under another gem's scheduler, as far as its hooks allow: that scheduler reports no wait, so a fiber of
# ours polls.
class DeadlineUnderAsyncTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  EXCEEDED = Heddle::DeadlineExceeded

  def setup
    reason = Hosts.missing(:async)
    skip reason if reason
  end

  def test_in_time
    under_async do
      assert_equal :value, Heddle.deadline(10) { sleep(0.001) && :value }
      assert_equal :value, Heddle.deadline(0) { :value }
      assert_nil Heddle.remaining
    end
  end

  def test_a_block_that_is_late
    with_pair do |reader, _|
      {sleep: -> { sleep(20) }, read: -> { reader.read(1) }, queue: -> { Thread::Queue.new.pop }}.each do |name, wait|
        assert_within(1) { under_async { assert_raises(EXCEEDED, name.to_s) { Heddle.deadline(0.02) { wait.call } } } }
      end
    end
  end

  def test_later_waits_fail
    tries = 0
    assert_within(2) do
      tries = 0
      under_async do
        assert_raises(EXCEEDED) do
          Heddle.deadline(0.02) do
            sleep(20)
          rescue Timeout::Error
            retry if (tries += 1) < 5
            :gave_up
          end
        end
      end
    end
    assert_equal 5, tries
  end

  def test_a_shield
    steps = []
    under_async do
      assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          sleep(20)
        ensure
          Heddle.shield(10) { sleep(0.05) && steps << :shielded }
        end
      end
    end
    assert_equal [:shielded], steps
  end

  def test_an_error_that_leaves_late
    under_async do
      error = assert_raises(EXCEEDED) do
        Heddle.deadline(0.02) do
          sleep(20)
        rescue Timeout::Error
          raise IOError
        end
      end
      assert_kind_of IOError, error.cause
    end
  end

  def test_nested
    under_async do
      assert_within(1, remeasure: 0) do
        assert_raises(EXCEEDED) { Heddle.deadline(0.02) { Heddle.deadline(20) { sleep } } }
      end
      assert_within(1, remeasure: 0) do
        assert_raises(EXCEEDED) { Heddle.deadline(20) { Heddle.deadline(0.02) { sleep } } }
      end
    end
  end

  def test_tasks_inherit_it
    under_async do
      task = Heddle.deadline(0.05) { Heddle.spawn { sleep(20) } }
      assert_within(1, remeasure: 0) { assert_raises(EXCEEDED) { task.value } }
    end
  end

  # The polling fiber must not keep the program alive.
  def test_a_deadline_that_was_left_does_not_keep_the_program_alive
    assert_within(5) { under_async { Heddle.deadline(1000) { sleep(0.001) } } }
  end

  private

  def under_async(&block) = Hosts.run(:async) { block.call }
end
