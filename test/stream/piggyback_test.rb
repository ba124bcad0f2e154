# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# Piggybacked bytes precede the next message, however the previous one was sent.
class StreamPiggybackTest < Minitest::Test
  include StreamHelpers

  LARGE = "x" * 40_000 # sent at once, from where it is

  def answer(stream, peer, length)
    peer.read(length)
    peer.write("ok\n")
    assert_equal "ok\n", stream.gets
  end

  def assert_rides(stream, peer)
    stream.queue_no_reply("close,")
    stream.write("question\n")
    stream.wait_readable(0)
    assert_equal "close,question\n", peer.gets
  end

  def test_after_a_message_that_was_sent_at_once
    with_stream(timeout: stretched(10)) do |stream, peer|
      stream.write(LARGE)
      answer(stream, peer, LARGE.bytesize)
      assert_rides(stream, peer)
    end
  end

  def test_after_a_message_that_was_sent_without_waiting
    with_stream(timeout: stretched(10)) do |stream, peer|
      assert_equal 2, stream.write_nonblock("m\n")
      answer(stream, peer, 2)
      assert_rides(stream, peer)
    end
  end

  def test_a_client_of_only_large_messages_keeps_nothing_queued
    with_stream(timeout: stretched(10), buffer_limit: 200_000) do |stream, peer|
      500.times do
        stream.queue_no_reply("c" * 1000)
        stream.write(LARGE)
        answer(stream, peer, 1000 + LARGE.bytesize)
      end
    end
  end

  # Neither side has sent too much, and nothing is lost: the stream stays open.
  def test_too_many_piggybacked_bytes_behind_an_unfinished_message
    with_stream(timeout: stretched(10), buffer_limit: 5000) do |stream, peer|
      stream.write("half a message")
      5.times { stream.queue_no_reply("c" * 1000) }
      assert_includes assert_raises(Heddle::BufferLimitExceeded) { stream.queue_no_reply("c") }.message,
        "end the message"
      stream.flush
      assert_equal "half a message#{"c" * 5000}", peer.read(5014)
      assert_predicate stream, :healthy?
    end
  end
end
