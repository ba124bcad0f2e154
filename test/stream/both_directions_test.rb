# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

runs_on rubies: :ends

# A reader and a writer at the same time, and reads that first have to send something, with peers that read nothing.
class StreamBothDirectionsTest < Minitest::Test
  include StreamHelpers

  # A connection that holds few bytes in transit: less than the stream buffers before it sends.
  def with_narrow_stream(**options)
    with_stream(**options) do |stream, peer|
      stream.setsockopt(:SOCKET, :SNDBUF, 1)
      peer.setsockopt(:SOCKET, :RCVBUF, 1)
      yield stream, peer
      stream.poison # otherwise its close would try to send the rest
    end
  end

  def test_close_does_not_wait_for_ever
    with_narrow_stream(write_timeout: 0.2) do |stream, _|
      fill(stream)
      assert_within(2, at_least: 0.1, remeasure: 0) { assert_raises(Heddle::DeadlineExceeded) { stream.close } }
      assert_predicate stream, :closed?
    end
    with_narrow_stream do |stream, _|
      fill(stream)
      assert_within(8, at_least: 4, remeasure: 0) { assert_raises(Heddle::DeadlineExceeded) { stream.close } }
    end
  end

  # More than a narrow connection holds, less than is sent at once.
  GATHERED = 60_000

  def gather(stream)
    2.times { stream.write("x" * (GATHERED / 2)) }
    assert_equal 0, stream.statistics[:waits]
  end

  def fill(stream)
    wait_until { stream.write_nonblock("x" * 20_000, exception: false) == :wait_writable }
    gather(stream)
  end

  def test_a_reader_with_pending_output_does_not_refuse_a_writer
    with_narrow_stream(timeout: 20) do |stream, peer|
      gather(stream)
      reading = Thread.new { stream.gets }
      wait_until { reading.stop? && stream.statistics[:waits] > 0 }
      stream.write("y\n")
      flushing = Thread.new { stream.flush }
      assert_equal GATHERED + 2, peer.gets.bytesize
      peer.write("answer\n")
      assert_equal "answer\n", reading.value
      flushing.join
      assert_predicate stream, :healthy?
    end
  end

  def test_a_reply_is_read_before_the_request_is_fully_sent
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_narrow_stream(timeout: 20) do |stream, peer|
          fill(stream)
          peer.write("stop\n")
          assert_equal "stop\n", stream.gets
          refute_predicate stream, :healthy?
        end
      end
    end
  end

  def test_the_read_timeout_covers_sending_pending_output
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_narrow_stream(read_timeout: 0.2) do |stream, _|
          fill(stream)
          error = assert_within(2, at_least: 0.15) { assert_raises(Heddle::DeadlineExceeded) { stream.gets } }
          assert_includes error.message, "0.2 s for reading"
        end
      end
    end
  end

  def test_the_write_timeout_applies_to_a_read_that_has_to_send
    with_narrow_stream(write_timeout: 0.2) do |stream, _|
      fill(stream)
      error = assert_within(2, at_least: 0.15) { assert_raises(Heddle::DeadlineExceeded) { stream.gets } }
      assert_includes error.message, "0.2 s for writing"
      assert_predicate stream, :closed?
    end
  end

  # Each piece that the peer sends would otherwise extend the write's time, and a read without a limit would extend it
  # without end.
  def test_arriving_data_does_not_extend_a_write_timeout
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_narrow_stream(write_timeout: 0.3) do |stream, peer|
          fill(stream)
          dripping = Thread.new do
            50.times { peer.write("x") && sleep(0.05) }
            peer.write("\n")
          rescue SystemCallError
            nil # it was closed, as it should be
          end
          error = assert_raises(Heddle::DeadlineExceeded) { stream.gets }
          assert_includes error.message, "0.3 s for writing"
          stream.poison
          dripping.join
        end
      end
    end
  end

  # A peer that reads a little now and then, but not all of it within the write's time.
  def test_the_write_timeout_bounds_a_whole_write
    slowly = ->(peer) { loop { peer.readpartial(65536) && sleep(0.02) } }
    writes = {
      "many Strings" => ->(stream) { stream.write(*Array.new(200) { "x" * 100_000 }) },
      "a large one" => ->(stream) { stream.write("x" * 20_000_000) },
      "small ones, gathered" => ->(stream) { stream.write(*["x" * 20_000] * 1000) }
    }
    writes.each do |name, write|
      [false, true].each do |tls|
        with_stream(tls: tls, serve: slowly, write_timeout: 0.5) do |stream|
          stream.setsockopt(:SOCKET, :SNDBUF, 65536) # otherwise it takes long until the socket accepts more
          assert_within(4, at_least: 0.4, remeasure: 0) do
            assert_raises(Heddle::DeadlineExceeded, "#{name}, TLS: #{tls}") { write.call(stream) }
          end
          assert_predicate stream, :closed?
        end
      end
    end
  end

  def test_wait_readable_keeps_its_timeout_though_the_peer_reads_nothing
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_narrow_stream do |stream, peer|
          fill(stream)
          assert_within(2, at_least: 0.05) { assert_nil stream.wait_readable(0.1) }
          refute_predicate stream, :closed?
          peer.write("!")
          assert_same stream, stream.wait_readable(10)
          assert_equal "!", stream.readpartial(10)
        end
      end
    end
  end

  # Each of the two calls TLS's library, which lets other threads run in the middle: they must not disturb each other.
  def test_a_reading_and_a_writing_thread
    [false, true].each do |tls|
      size = 8 << 20
      echo = ->(peer) { loop { peer.write(peer.readpartial(65536)) } }
      with_stream(tls: tls, serve: echo, timeout: stretched(60)) do |stream|
        writing = Thread.new do
          (size / 1000).times do |i|
            stream.write("x" * 1000)
            stream.flush if i % 7 == 0
          end
          stream.flush
        end
        count = 0
        count += stream.readpartial(10_000).bytesize while count < size / 1000 * 1000
        writing.join
        assert_equal size / 1000 * 1000, count
      end
    end
  end

  def test_a_half_closed_peer_can_still_be_written_to
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream(timeout: stretched(10)) do |stream, peer|
          peer.write("last")
          peer.close_write
          assert_equal "last", stream.read
          stream.write("more\n")
          stream.flush
          assert_equal "more\n", peer.gets
          refute_predicate stream, :healthy?
        end
        with_stream(timeout: stretched(10)) do |stream, peer|
          stream.write("question")
          stream.close_write
          assert_equal "question", peer.read
          peer.write("answer\n")
          assert_equal "answer\n", stream.gets
          assert_raises(Errno::EPIPE) { stream.write("x") && stream.flush }
          assert_predicate stream, :closed?
        end
      end
    end
  end

  # Neither reads before it has written all, which is more than sockets hold.
  def test_two_streams_that_write_first
    listener = TCPServer.new("127.0.0.1", 0)
    near = Heddle::Stream.connect("127.0.0.1", listener.addr[1], timeout: 60)
    far = Heddle::Stream.new(listener.accept, timeout: 60)
    bytes = Random.bytes(10 << 20)
    Heddle.run do
      tasks = [near, far].map do |stream|
        Heddle.spawn do
          stream.write(bytes)
          stream.flush
          stream.read(bytes.bytesize)
        end
      end
      tasks.each { |task| assert_equal bytes, task.value }
    end
  ensure
    [near, far, listener].compact.each(&:close)
  end
end
