# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"
require "heddle"

# A socket that the program's own code closes, in a block or in what it uploads: another file soon gets its number,
# from which nothing may be read and to which nothing may be sent.
class NetHTTPClosedMeanwhileTest < Minitest::Test
  include LoopHelpers

  mode :thread

  NEXT_CHUNK = "\r\n7\r\nstrange\r\n0\r\n\r\n"
  CHUNKED = {pieces: ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello"], ending: nil}.freeze
  SIZED = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello"], ending: nil}.freeze
  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  # Calls the block before it returns its first bytes.
  class Source
    def initialize(&block)
      @block = block
    end

    def read(_length, buffer)
      return unless @block

      @block.call
      @block = nil
      buffer.replace("secret")
    end
  end

  def setup
    Heddle::NetHTTP.enable
    @server = ScriptedHTTPServer.new
    @before = Heddle::NetHTTP.stats[:fast]
  end

  def teardown
    @others&.flatten&.each(&:close)
    @server.close
  end

  {"chunked" => CHUNKED, "sized" => SIZED}.each do |name, reply|
    define_method(:"test_a_block_that_closes_#{name}") do
      each_mode do
        @server.play([[reply]] * 2)
        got = []
        error = assert_raises(IOError) do
          start do |http|
            http.request_get("/") do |response|
              response.read_body do |segment|
                got << segment
                close(http) { |other| other.write(NEXT_CHUNK) } if got.join == "hello"
              end
            end
          end
        end
        assert_equal ["closed stream", "hello"], [error.message, got.join]
      end
    end
  end

  %w[Content-Length Transfer-Encoding].zip(%w[6 chunked]).each do |field, value|
    define_method(:"test_an_upload_that_closes_#{value}") do
      each_mode do
        @server.play([[REPLY]] * 2)
        request = Net::HTTP::Put.new("/", "Content-Type" => "x/y", field => value)
        error = assert_raises(IOError) do
          start do |http|
            request.body_stream = Source.new { close(http) { |other| @other = other } }
            http.request(request)
          end
        end
        assert_equal ["closed stream", :wait_readable], [error.message, @other.read_nonblock(100, exception: false)]
      end
    end
  end

  # Between two small chunks, where the reader gives its turn away, after the beginning of a large one was received.
  def test_another_task_that_closes_between_two_chunks
    small = "1\r\na\r\n" * 500
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n#{small}400\r\nbb"], ending: nil}]])
    body = +""
    Heddle.run do
      error = assert_raises(IOError) do
        start do |http|
          Heddle.spawn do
            sleep(0) while body.empty?
            close(http) { |other| other.write("strange" * 200) }
          end
          http.request_get("/") { |response| response.read_body(body) }
        end
      end
      assert_equal ["closed stream", "a" * 500 + "bb"], [error.message, body]
    end
  end

  # As with stock: the bytes are in @rbuf.
  def test_bytes_that_were_already_received_can_still_be_read
    %i[disable enable].each do |switch|
      Heddle::NetHTTP.public_send(switch)
      @server.play([[REPLY]])
      start do |http|
        socket = http.instance_variable_get(:@socket)
        socket.write("GET / HTTP/1.1\r\n\r\n")
        assert_equal "HTTP/1.1 200 OK", socket.readline
        socket.close
        assert_equal "Content-Length: 5\r\n\r\nhello",
          socket.readuntil("\n") + socket.readline + "\r\n" + socket.read(5), switch.to_s
        assert_equal "closed stream", assert_raises(IOError) { socket.read(1) }.message
      end
    end
  end

  private

  # With stock, and accelerated in a thread and in a task.
  def each_mode
    Heddle::NetHTTP.disable
    yield
    Heddle::NetHTTP.enable
    yield
    assert_operator Heddle::NetHTTP.stats[:fast], :>, @before
    Heddle.run { yield }
  end

  def start(&block)
    Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, max_retries: 0, &block)
  end

  # Gives the number to one end of a pair, and yields the other end.
  def close(http)
    io = http.instance_variable_get(:@socket).io
    number = io.fileno
    io.close
    (@others ||= []) << UNIXSocket.pair until @others&.flatten&.any? { |other| other.fileno == number }
    yield @others.find { |pair| pair.any? { |other| other.fileno == number } }.find { |other| other.fileno != number }
  end
end
