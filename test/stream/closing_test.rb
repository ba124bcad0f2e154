# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"

# Bytes that must be neither lost nor sent to another socket when a stream is closed, or checked before it is handed
# on.
class StreamClosingTest < Minitest::Test
  include StreamHelpers

  # By then the socket's number belongs to another file.
  def test_buffered_bytes_go_to_no_other_socket
    with_pair do |near, _|
      stream = Heddle::Stream.new(near.dup)
      socket = stream.to_io
      number = socket.fileno
      stream.write("secret")
      socket.close
      pairs = []
      wait_until { (pairs << UNIXSocket.pair).last.any? { |other| other.fileno == number } }
      assert_raises(Heddle::StreamClosed) { stream.close }
      pairs.flatten.each { |other| assert_equal :wait_readable, other.read_nonblock(100, exception: false) }
    ensure
      pairs&.flatten&.each(&:close)
    end
  end

  # Exceptions of Thread#raise and Timeout may be StandardErrors, too.
  def test_an_exception_raised_during_close_is_not_lost
    with_stream do |stream, _|
      socket = stream.to_io
      sent = false
      socket.define_singleton_method(:close) do
        next super() if sent

        sent = true
        raise Timeout::Error, "sent"
      end
      assert_equal "sent", assert_raises(Timeout::Error) { stream.close }.message
      assert_predicate socket, :closed?
    end
  end

  # Signals may come faster than a call ends.
  def test_a_socket_is_closed_however_many_exceptions_come
    with_stream do |stream, _|
      socket = stream.to_io
      left = 9
      socket.define_singleton_method(:close) do
        raise Timeout::Error, "the last but #{left}" if (left -= 1) >= 0

        super()
      end
      assert_equal "the last but 0", assert_raises(Timeout::Error) { stream.close }.message
      assert_predicate socket, :closed?
    end
  end

  def test_an_exception_raised_during_close_is_not_lost_behind_an_error_of_the_socket
    with_stream do |stream, _|
      socket = stream.to_io
      sent = false
      socket.define_singleton_method(:close) do
        raise Timeout::Error, "sent" unless sent.tap { sent = true }

        super()
        raise IOError, "of its own"
      end
      assert_equal "sent", assert_raises(Timeout::Error) { stream.close }.message
      assert_predicate socket, :closed?
    end
  end

  def test_errors_of_a_sockets_own_close_are_ignored
    [Errno::ECONNRESET, IOError, OpenSSL::SSL::SSLError].each do |error|
      with_stream(tls: true, timeout: stretched(10)) do |stream, _|
        stream.tls.define_singleton_method(:close) { raise error, "of its own" }
        socket = stream.to_io
        assert_nil stream.close
        assert_predicate socket, :closed?
      end
    end
  end

  # A pool would close a good connection.
  def test_a_signal_during_healthy_is_not_taken_for_bad_health
    out = assert_child(<<~RUBY)
      stream = Heddle::Stream.new(UNIXSocket.pair.tap { |_, peer| PEER = peer }.first)
      trap("USR1") {}
      parent = Process.pid
      sender = fork do
        3_000_000.times { Process.kill(:USR1, parent) }
      ensure
        exit!
      end
      p Heddle.run { Array.new(200_000) { stream.healthy? } }.tally
      Process.kill(:KILL, sender)
      Process.wait(sender)
    RUBY
    assert_equal({true => 200_000}.inspect, out.strip)
  end

  def test_an_exception_raised_during_healthy_is_not_taken_for_bad_health
    with_stream(tls: true, timeout: stretched(10)) do |stream, _|
      stream.tls.define_singleton_method(:pending) { raise Timeout::Error, "sent" }
      assert_raises(Timeout::Error) { stream.healthy? }
    end
    with_stream(tls: true, timeout: stretched(10)) do |stream, _|
      stream.tls.define_singleton_method(:pending) { raise OpenSSL::SSL::SSLError, "broken" }
      refute_predicate stream, :healthy?
    end
  end

  # Arguments are converted by their own methods.
  def test_an_argument_that_closes_the_stream
    calls = {
      read: :to_int, readpartial: :to_int, skip: :to_int, peek: :to_int, gets: :to_int, read_nonblock: :to_int,
      unread: :to_str
    }
    calls.each do |name, conversion|
      with_stream do |stream, _|
        argument = Object.new
        argument.define_singleton_method(conversion) do
          stream.close
          (conversion == :to_int) ? 5 : "5"
        end
        assert_raises(IOError, name.to_s) { Timeout.timeout(5) { stream.public_send(name, argument) } }
      end
    end
  end
end
