# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "redis-client"
require "tmpdir"
require_relative "../../examples/stream_sphinx"
require_relative "../../examples/stream_stand_in"

runs_on rubies: :ends

# Unmodified clients that get a stream instead of a socket.
class StreamStandInTest < Minitest::Test
  include StreamHelpers

  def http(body, drip: nil)
    lambda do |peer|
      loop do
        nil until peer.gets == "\r\n"
        peer.write("HTTP/1.1 200 OK\r\ncontent-length: #{body.bytesize}\r\n\r\n")
        drip ? body.each_char { |byte| peer.write(byte) && sleep(drip) } : peer.write(body)
      end
    end
  end

  def test_net_http
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream(serve: http("body\n" * 5000), timeout: stretched(5)) do |stream|
          2.times { assert_equal "body\n" * 5000, get_over(stream, "localhost", "/").body }
          assert_predicate stream, :healthy?
        end
      end
    end
  end

  def test_net_http_and_a_server_that_sends_byte_by_byte
    with_stream(serve: http("x" * 100, drip: 0.1)) do |stream|
      assert_within(2, at_least: 0.2) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { get_over(stream, "localhost", "/") } }
      end
    end
  end

  # As in the example: its waits bypass the stream, and the deadline around it bounds them all the same.
  def test_net_http_and_a_server_that_stalls
    stall = ->(peer) { peer.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc") && sleep }
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_stream(serve: stall) do |stream|
          assert_within(2, at_least: 0.2) do
            assert_raises(Heddle::DeadlineExceeded) do
              Heddle.deadline(0.3) { stream.exchange { get_over(stream, "localhost", "/") } }
            end
          end
          assert_predicate stream, :closed?
        end
      end
    end
  end

  # searchd's protocol, as far as riddle uses it: one answer a connection. With `drip`, a byte of it in so many
  # seconds.
  def searchd(drip: nil)
    word = ->(text) { [text.bytesize, text].pack("Na*") }
    lambda do |peer|
      peer.write([1].pack("N")) # its version
      peer.read(4)
      command, _, length = peer.read(8).unpack("nnN")
      request = peer.read(length)
      unless command.zero? && request.include?(word.call("lost weft"))
        raise "not a search for the words: #{request.inspect}"
      end

      matches = Array.new(1000) { |i| [i + 1, 100].pack("NN") }
      body = [0, 1].pack("NN") + word.call("title") + [0, matches.size, 0].pack("NNN") + matches.join +
        [1000, 1234, 5, 1].pack("NNNN") + word.call("weft") + [7, 9].pack("NN")
      peer.write([0, 0x119, body.bytesize].pack("nnN"))
      drip ? body.each_char { |byte| peer.write(byte) && sleep(drip) } : peer.write(body)
      sleep
    end
  end

  def with_sphinx(**behaviour)
    listener = TCPServer.new("127.0.0.1", 0)
    serving = Thread.new { loop { searchd(**behaviour).call(listener.accept) } }
    serving.report_on_exception = false
    yield listener.addr[1]
  ensure
    serving&.kill
    listener&.close
  end

  def test_the_client_of_sphinx
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_sphinx do |port|
          found = sphinx("127.0.0.1", port, timeout: 10).query("lost weft")
          assert_equal [1234, {"weft" => {docs: 7, hits: 9}}, (1..1000).to_a],
            [found[:total_found], found[:words], found[:matches].map { |match| match[:doc] }]
        end
      end
    end
  end

  def test_the_client_of_sphinx_and_a_server_that_sends_byte_by_byte
    %i[thread fiber].each do |wait|
      in_mode(wait) do
        with_sphinx(drip: 0.05) do |port|
          client = sphinx("127.0.0.1", port, timeout: 10)
          assert_within(2, at_least: 0.25) do
            assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { client.query("lost weft") } }
          end
        end
      end
    end
  end

  # The layers of redis-client below its configuration: a buffer over the socket, and the protocol.
  def test_redis_client
    redis = lambda do |peer|
      values = {}
      while (head = peer.gets)
        words = Array.new(Integer(head[1..])) { peer.read(Integer(peer.gets[1..]) + 2).chomp }
        case words.first
        when "SET" then values[words[1]] = words[2]
                        peer.write("+OK\r\n")
        when "GET" then peer.write("$#{values[words[1]].bytesize}\r\n#{values[words[1]]}\r\n")
        end
      end
    end
    with_stream(serve: redis, timeout: stretched(5)) do |stream|
      io = RedisClient::RubyConnection::BufferedIO.new(stream, read_timeout: 5, write_timeout: 5)
      ask = lambda do |*words|
        io.write(RedisClient::RESP3.dump(words))
        RedisClient::RESP3.load(io)
      end
      assert_equal "OK", ask.call("SET", "key", "v" * 100_000)
      assert_equal "v" * 100_000, ask.call("GET", "key")
      assert_predicate stream, :healthy?
    end
  end

  def test_select_knows_what_was_sent_but_not_what_was_read_ahead
    with_stream(serve: ->(peer) { peer.write("one\ntwo\n") if peer.gets && sleep }) do |stream|
      stream.write("unsent")
      assert_nil IO.select([stream], nil, nil, 0)
      assert_equal 1, stream.statistics[:sends]
    end
    with_stream(serve: ->(peer) { peer.write("one\ntwo\n") && sleep }) do |stream|
      assert_equal "one\n", stream.gets
      assert_equal 4, stream.buffered
      assert_nil IO.select([stream], nil, nil, 0)
      assert_same stream, stream.wait_readable(0)
    end
  end

  def test_an_io_that_has_read_ahead_is_taken_over_with_its_bytes
    with_pair do |near, far|
      far.write("one\ntwo\n")
      assert_equal "one\n", near.gets
      stream = Heddle::Stream.new(near, timeout: 5)
      assert_equal "two\n", stream.gets
      assert_equal near.remote_address.unix_path, stream.remote_address.unix_path
    end
  end

  def test_recv_at_the_end_returns_the_same_as_a_sockets
    ours, theirs = Array.new(2) { UNIXSocket.pair }
    [ours, theirs].each { |_, peer| peer.write("x") && peer.close }
    stream = Heddle::Stream.new(ours.first)
    assert_equal Array.new(2) { theirs.first.recv(1) }, Array.new(2) { stream.recv(1) }
  ensure
    [stream, theirs.first].each(&:close)
  end

  def test_a_limit_of_zero_is_refused_where_it_would_never_end
    with_stream do |stream, _|
      assert_raises(ArgumentError) { stream.each_line(0) { flunk } }
      assert_raises(ArgumentError) { stream.readlines("\n", 0) }
    end
  end

  def test_write_nonblock_counts_only_its_own_bytes
    [false, true].each do |tls|
      with_stream(tls: tls, timeout: stretched(10)) do |stream, peer|
        stream.write("a" * 20_000) # more than a record
        assert_equal 1, stream.write_nonblock("b")
        assert_equal "#{"a" * 20_000}b", peer.read(20_001)
      end
    end
  end

  def test_an_io_of_two_pipes_is_refused
    IO.popen("cat", "r+") do |pipes|
      assert_includes assert_raises(ArgumentError) { Heddle::Stream.new(pipes) }.message, "a single file descriptor"
    end
  end

  def test_unix_sockets
    Dir.mktmpdir do |folder|
      server = UNIXServer.new("#{folder}/socket")
      stream = Heddle::Stream.unix("#{folder}/socket", timeout: 5)
      peer = server.accept
      peer.write("hello\n")
      assert_equal "hello\n", stream.gets
      assert_equal "#{folder}/socket", stream.peer
    ensure
      [server, stream, peer].compact.each(&:close)
    end
  end
end
