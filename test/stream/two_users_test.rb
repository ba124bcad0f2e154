# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# Two fibers or threads at one stream: calls that would mix their bytes are refused before anything is lost, and the
# others do not disturb each other.
class StreamTwoUsersTest < Minitest::Test
  include StreamHelpers

  # In a thread beside this one, or in a task beside it. Returns an object with a `value`.
  def beside(wait, &block)
    return Heddle.spawn(&block) if wait == :fiber

    Thread.new(&block).tap { |thread| thread.report_on_exception = false }
  end

  def test_an_exchange_while_another_is_in_one_is_refused_and_leaves_no_trace
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream(timeout: stretched(20)) do |stream, peer|
          first = beside(wait) do
            stream.exchange(2, timeout: 20) { stream.write("one\n") && Array.new(2) { stream.gets } }
          end
          assert_equal "one\n", peer.gets
          wait_until { stream.statistics[:waits] == 1 }
          error = assert_raises(Heddle::StreamBusy) { stream.exchange(5, timeout: 0.01) { flunk } }
          assert_includes error.message, "in the middle of an exchange with 127.0.0.1"
          assert_equal [false, 2], [stream.closed?, stream.owed]
          peer.write("a\n")
          wait_until { stream.statistics[:waits] == 2 }
          sleep 0.05 # for as long as the refused one had
          peer.write("b\n")
          assert_equal %W[a\n b\n], first.value
          assert_predicate stream, :healthy?
          peer.write("c\n")
          assert_equal "c\n", stream.exchange { stream.exchange { stream.gets } }
        end
      end
    end
  end

  def test_an_exchange_may_follow_one_whose_fiber_is_gone
    with_stream(timeout: stretched(20)) do |stream, peer|
      peer.write("a\nb\n")
      assert_equal "a\n", Thread.new { stream.exchange { stream.gets } }.value
      assert_equal "b\n", Fiber.new { stream.exchange { stream.gets } }.resume
    end
  end

  # A call that reads, flushes or asks for the socket sends the first half of another's message; that message
  # continues afterwards.
  def test_piggybacked_bytes_never_split_another_users_message
    sends = {
      reading: ->(stream) { stream.gets },
      looking: ->(stream) { stream.wait_readable },
      flushing: ->(stream) { stream.flush },
      "for the socket": ->(stream) { stream.to_io }
    }
    sends.each do |name, send_first|
      %i[thread fiber].each do |wait|
        in_mode(wait) do
          with_stream(timeout: stretched(20)) do |stream, peer|
            stream.write("half a ")
            other = beside(wait) { send_first.call(stream) }
            assert_equal "half a ", peer.readpartial(100)
            wait_until { stream.statistics[:waits] == 1 } if %i[reading looking].include?(name)
            stream.queue_no_reply("close,")
            stream.write("message\n")
            stream.flush
            assert_equal "message\n", peer.gets, "#{name} in a #{wait}"
            peer.write("answer\n")
            other.value
            stream.write("next\n")
            stream.flush
            assert_equal "close,next\n", peer.gets
          end
        end
      end
    end
  end

  def test_a_message_ends_with_the_thread_that_wrote_it
    with_stream(timeout: stretched(20)) do |stream, peer|
      Thread.new { stream.write("first\n") }.join
      GC.start
      stream.queue_no_reply("close,")
      stream.flush
      assert_equal "first\nclose,", peer.readpartial(100)
      stream.queue_no_reply("close,")
      stream.write("second\n")
      stream.flush
      assert_equal "close,second\n", peer.gets
    end
  end

  # Calls a method of the TLS socket, and stops in it until it may continue.
  def stopping_in(stream, name)
    entered, gate = Queue.new, Queue.new
    stream.tls.define_singleton_method(name) do |*arguments, **options|
      unless gate.closed?
        entered << true
        gate.pop
      end
      super(*arguments, **options)
    end
    yield entered, -> { gate.close }
  ensure
    gate.close
  end

  # TLS's library lets other threads run in the middle of a call, also of a call that a reader makes to write.
  def test_no_read_while_a_reader_sends_pending_output
    with_stream(tls: true, timeout: stretched(20)) do |stream, peer|
      stopping_in(stream, :write_nonblock) do |entered, go_on|
        stream.write("question\n")
        reading = Thread.new { stream.gets }
        entered.pop
        stream.read_timeout = 1
        assert_raises(Heddle::StreamBusy) { stream.gets }
        go_on.call
        peer.write("answer\n")
        assert_equal "answer\n", reading.value
      end
    end
  end

  def test_no_write_while_a_writer_reads_arriving_data
    with_stream(tls: true, timeout: stretched(20)) do |stream, peer|
      size = 32 << 20
      stopping_in(stream, :read_nonblock) do |entered, go_on|
        writing = Thread.new do
          stream.write("x" * size)
          stream.flush
        end
        peer.write("meanwhile\n")
        entered.pop
        assert_raises(Heddle::StreamBusy) { stream.write("in the middle") }
        assert_raises(Heddle::StreamBusy) { stream.flush }
        go_on.call
        assert_equal "x" * size, peer.read(size)
        writing.value
        assert_equal "meanwhile\n", stream.gets
      end
    end
  end

  # Bytes written in the clear would end up in the middle of the handshake.
  def test_no_read_or_write_while_tls_begins
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream(serve: ->(peer) { peer.readpartial(1000) && sleep }, timeout: stretched(20)) do |stream, _|
          securing = beside(wait) do
            stream.start_tls("localhost", {verify: false})
          rescue IOError => error
            error
          end
          wait_until { stream.statistics[:waits] > 0 }
          uses = [->(s) { s.write("x") }, ->(s) { s.flush }, ->(s) { s.gets }, ->(s) { s.exchange { flunk } },
            ->(s) { s.start_tls("localhost") }]
          uses.each { |use| assert_raises(Heddle::StreamBusy) { use.call(stream) } }
          refute_predicate stream, :closed?
          stream.poison
          assert_kind_of IOError, securing.value
        end
      end
    end
  end

  def test_tls_does_not_begin_during_a_read
    with_stream(timeout: stretched(20)) do |stream, peer|
      reading = Thread.new { stream.gets }
      wait_until { stream.statistics[:waits] == 1 }
      assert_raises(Heddle::StreamBusy) { stream.start_tls("localhost") }
      peer.write("line\n")
      assert_equal "line\n", reading.value
    end
  end
end
