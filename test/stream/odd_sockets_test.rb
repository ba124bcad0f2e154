# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "fcntl"
require "pty"
require "tempfile"

runs_on rubies: :ends

# Heddle::Stream.new takes sockets that other code has made, in any state.
class StreamOddSocketsTest < Minitest::Test
  include StreamHelpers

  def each_mode
    %i[thread fiber].each { |wait| in_mode(wait) { yield wait } }
  end

  def test_closed
    reader, writer = IO.pipe
    [reader, writer].each(&:close)
    assert_raises(IOError) { Heddle::Stream.new(reader) }
    assert_raises(TypeError) { Heddle::Stream.new("no socket") }
  end

  def test_bytes_in_the_sockets_own_buffer_go_first
    with_pair do |near, far|
      near.sync = false
      near.write("first ")
      stream = Heddle::Stream.new(near)
      stream.write("second\n")
      stream.flush
      assert_equal "first second\n", far.gets
    end
  end

  # The other side of a pair has no path that messages could name.
  def test_a_peer_without_a_name
    with_pair do |near, _|
      stream = Heddle::Stream.new(near)
      assert_equal near.inspect, stream.peer
      near.close
      assert_includes assert_raises(IOError) { stream.read(1) }.message, "the stream to #<UNIXSocket:fd"
    end
  end

  def test_not_connected
    each_mode do
      socket = Socket.new(:INET, :STREAM)
      stream = Heddle::Stream.new(socket, timeout: 5)
      assert_raises(Errno::ENOTCONN) { stream.gets }
      assert_predicate stream, :closed?
      assert_predicate socket, :closed?
    end
  end

  def test_a_socket_that_is_still_connecting
    each_mode do
      server = TCPServer.new("127.0.0.1", 0)
      socket = Socket.new(:INET, :STREAM)
      socket.connect_nonblock(server.local_address.to_sockaddr, exception: false)
      stream = Heddle::Stream.new(socket, timeout: 5)
      stream.write("hello\n")
      stream.flush
      peer = server.accept
      assert_equal "hello\n", peer.gets
    ensure
      [server, stream, peer].compact.each(&:close)
    end
  end

  # Ruby's sockets are O_NONBLOCK; those of other code need not be.
  def test_descriptors_that_block
    each_mode do
      near, far = UNIXSocket.pair
      [near, far].each { |socket| clear_nonblock(socket) }
      stream = Heddle::Stream.new(near, read_timeout: 0.1, write_timeout: 10)
      reading = Thread.new { far.read(3_000_000).bytesize }
      stream.write("x" * 3_000_000)
      assert_equal 3_000_000, reading.value
      assert_within(2) { assert_raises(Heddle::DeadlineExceeded) { stream.gets } }
    ensure
      [stream, far].compact.each(&:close)
    end
  end

  def clear_nonblock(socket)
    flags = socket.fcntl(Fcntl::F_GETFL)
    socket.fcntl(Fcntl::F_SETFL, flags & ~File::NONBLOCK)
  end

  def test_tls_on_a_socket_that_blocks
    each_mode do
      listener = TCPServer.new("127.0.0.1", 0)
      serving = Thread.new do
        peer = OpenSSL::SSL::SSLSocket.new(listener.accept, Certificates.context)
        peer.accept
        peer.write("half a line")
        sleep
      end
      socket = TCPSocket.new("127.0.0.1", listener.addr[1])
      clear_nonblock(socket)
      stream = Heddle::Stream.new(socket, timeout: 5)
      stream.start_tls("localhost", {ca_file: Certificates.authority_file})
      stream.read_timeout = 0.2
      assert_within(2, at_least: 0.1) { assert_raises(Heddle::DeadlineExceeded) { stream.gets } }
    ensure
      serving&.kill
      [stream, listener].compact.each(&:close)
    end
  end

  def test_pipes
    each_mode do
      reader, writer = IO.pipe
      from = Heddle::Stream.new(reader, timeout: 5)
      to = Heddle::Stream.new(writer, timeout: 5)
      to.write("a line\n", "rest")
      to.close
      assert_equal "a line\n", from.gets
      assert_equal "rest", from.read
      from.close
    end
  end

  def test_the_wrong_end_of_a_pipe
    reader, writer = IO.pipe
    stream = Heddle::Stream.new(reader, timeout: 5)
    assert_raises(Errno::EBADF, IOError) { stream.write("x") && stream.flush }
    stream = Heddle::Stream.new(writer, timeout: 0.1)
    assert_raises(Heddle::DeadlineExceeded, SystemCallError) { stream.gets }
    assert_predicate stream, :closed?
  end

  def test_a_terminal_and_a_file
    each_mode do
      near, far = PTY.open
      stream = Heddle::Stream.new(near, timeout: 5)
      far.write("hello\n")
      assert_equal "hello\r\n", stream.gets
      [stream, far].each(&:close)
      Tempfile.create do |file|
        file.write("one\ntwo\n")
        file.flush
        stream = Heddle::Stream.new(File.open(file.path), timeout: 5)
        assert_equal %W[one\n two\n], stream.readlines
        stream.close
      end
    end
  end

  # Before the first operation the peer is gone, in every way.
  def test_a_peer_that_is_gone
    each_mode do
      with_stream(timeout: stretched(5)) do |stream, peer|
        peer.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
        peer.close
        wait_until { !stream.healthy? }
        assert_raises(Errno::ECONNRESET, Errno::EPIPE) { stream.gets }
        assert_predicate stream, :closed?
      end
      with_stream(timeout: stretched(5)) do |stream, peer|
        stream.to_io.close # behind the stream's back
        assert_raises(IOError) { stream.write("x") && stream.flush }
        assert_raises(IOError) { stream.gets }
        refute_predicate stream, :healthy?
        assert_nil stream.close
      end
    end
  end

  # The next socket gets its number at once: none of our bytes may go there, and none of its may come to us.
  def test_a_descriptor_number_that_now_belongs_to_another_socket
    [->(s) { s.write("x") && s.flush }, ->(s) { s.gets }, ->(s) { s.wait_readable(0) },
      ->(s) { s.write_nonblock("x") }].each do |use|
      with_stream(timeout: stretched(5)) do |stream, _|
        number = stream.fileno
        stream.to_io.close
        other, far = UNIXSocket.pair
        assert_equal number, other.fileno
        far.write("for the other\n")
        assert_raises(Heddle::StreamClosed) { use.call(stream) }
        assert_equal "for the other\n", other.gets
        other.close
        assert_equal "", far.read
      ensure
        [other, far].compact.each(&:close)
      end
    end
    # … also when that happens while a fiber whose bytes have arrived waits for its turn.
    Heddle.run do
      with_stream(timeout: stretched(5)) do |stream, peer|
        signal, signalled = UNIXSocket.pair
        other = far = nil
        number = stream.fileno
        reading = Heddle.spawn do
          stream.gets
        rescue IOError => error
          error
        end
        closing = Heddle.spawn do
          signal.readpartial(1)
          stream.to_io.close
          other, far = UNIXSocket.pair
          far.write("for the other\n")
        end
        signalled.write("!")
        peer.write("for us\n")
        closing.wait
        assert_equal number, other.fileno
        assert stream.closed? || reading.value == "for us\n", reading.value.inspect # it had its turn first
        reading.wait
        assert_equal "for the other\n", other.gets
      ensure
        [signal, signalled, other, far].compact.each(&:close)
      end
    end
  end

  def test_puts_writes_the_same_as_ios_puts
    [[], [[]], [nil], [""], ["a", ["b\n", [3]]], ["x\n\n"], [[], "y"]].each do |objects|
      reader, writer = IO.pipe
      writer.puts(*objects)
      writer.close
      with_stream do |stream, peer|
        stream.puts(*objects)
        stream.close
        assert_equal reader.read, peer.read, objects.inspect
      end
    end
  end

  # Byte by byte, character by character, and put back.
  def test_small_reads_return_the_same_as_ios
    calls = [[:readbyte], [:readchar], [:ungetc, "é"], [:getc], [:getbyte], [:ungetbyte, 0x141], [:ungetbyte, nil],
      [:getc], [:ungetc, 0x62], [:ungetbyte, "a"],
      [:readlines], [:getc], [:readchar], [:readbyte]]
    reader, writer = IO.pipe(Encoding::BINARY)
    writer.write("0é\nx\ny")
    writer.close
    with_stream(serve: ->(peer) { peer.write("0é\nx\ny") && peer.close }) do |stream|
      calls.each { |call| assert_equal outcome_of(reader, call), outcome_of(stream, call), call.inspect }
      assert_equal [Encoding::BINARY, nil, stream, true],
        [stream.external_encoding, stream.internal_encoding, stream.set_encoding("utf-8"), stream.binmode?]
    end
    with_stream(serve: ->(peer) { peer.write("ab") && peer.close }) do |stream|
      assert_equal [97, 98], stream.each_byte.to_a
    end
  end

  def test_send_takes_bytes_and_flags_as_sockets_do
    with_stream do |stream, peer|
      send = ->(*arguments) { stream.send(*arguments) } # names have the meaning of Strings here
      assert_equal 3, send.call("abc", 0)
      assert_equal "abc", peer.readpartial(10)
      assert_equal 1, send.call("!", Socket::MSG_OOB | Socket::MSG_NOSIGNAL)
      assert_equal 2, send.call("write", "de")
      assert_equal 2, send.call(:write, "fg")
      assert_same stream, send.call("flush")
      assert_equal "defg", peer.readpartial(10)
    end
  end

  private

  def outcome_of(io, call)
    [io.public_send(*call)]
  rescue => error
    [error.class, error.message]
  end
end
