# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

# In tasks of another scheduler, which does not know streams.
class StreamOtherSchedulerTest < Minitest::Test
  include StreamHelpers

  mode :fiber

  def setup
    skip "async waits with IO#timeout, which Ruby #{RUBY_VERSION} lacks" unless IO.method_defined?(:timeout)
    require "async"
  end

  def silent = ->(_) { sleep }

  def test_a_task_that_is_stopped_in_the_middle_of_a_reply_closes_the_stream
    Sync do |parent|
      with_stream(serve: ->(peer) { peer.write("half a li") && sleep }) do |stream|
        asking = parent.async { stream.gets }
        wait_until { stream.statistics[:bytes_received] == 9 }
        asking.stop
        asking.wait
        assert_predicate stream, :closed?
        assert_raises(Heddle::StreamClosed) { stream.gets }
      end
    end
  end

  # Both sides have to learn of it: the reader in its task, and whatever gets the descriptor's number next.
  def test_close_by_another_task
    Sync do |parent|
      before = descriptor_count
      with_stream(serve: silent) do |stream|
        asking = parent.async do
          stream.gets
        rescue IOError => error
          error
        end
        wait_until { stream.statistics[:waits] == 1 }
        stream.close
        assert_predicate stream, :closed?
        assert_within(5, remeasure: 0) { assert_kind_of IOError, asking.wait }
      end
      wait_until(what: "the close of the descriptors") { descriptor_count <= before }
    end
  end

  def test_close_by_another_thread
    Sync do
      with_stream(serve: silent) do |stream|
        closing = Thread.new do
          wait_until { stream.statistics[:waits] == 1 }
          stream.close
        end
        assert_within(5, remeasure: 0) { assert_raises(IOError) { stream.gets } }
        closing.join
      end
    end
  end

  def test_others_have_their_turn_and_timeouts_hold
    Sync do |parent|
      ticks = 0
      ticking = parent.async { loop { sleep(0.01) && ticks += 1 } }
      with_stream(serve: ->(peer) { loop { peer.write("x") && sleep(0.02) } }, read_timeout: 0.3) do |stream|
        assert_within(3, at_least: 0.25, remeasure: 0) { assert_raises(Heddle::DeadlineExceeded) { stream.gets } }
        assert_operator ticks, :>=, 3
      end
      ticking.stop
    end
  end

  def test_its_own_timeout_closes_the_stream_too
    Sync do |task|
      with_stream(serve: silent) do |stream|
        assert_raises(Async::TimeoutError) { task.with_timeout(0.1) { stream.gets } }
        assert_predicate stream, :closed?
      end
    end
  end
end
