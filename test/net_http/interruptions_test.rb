# frozen_string_literal: true

require "test_helper"
require "async"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"

runs_on also: %i[yjit], except: %i[newest_net_http]

# A request that is ended in the middle, at each byte of its reply: it ends at once, and no later request on that
# connection gets its answer.
class NetHTTPInterruptionsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  REPLIES = {
    "sized" => "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\nstale",
    "chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsta\r\n2\r\nle\r\n0\r\n\r\n",
    "inflated" => "HTTP/1.1 200 OK\r\nContent-Length: 25\r\nContent-Encoding: gzip\r\n\r\n".b + Zlib.gzip("stale")
  }.freeze
  FRESH = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfresh"], ending: nil}.freeze

  # Not a StandardError: the library does not rescue it, and leaves the connection open.
  class Stop < Exception # rubocop:disable Lint/InheritException
  end

  def setup
    Heddle::NetHTTP.enable
    @server = ScriptedHTTPServer.new
    @before = Heddle::NetHTTP.stats[:fast]
  end

  def teardown
    assert_operator Heddle::NetHTTP.stats[:fast], :>, @before
    @server.close
  end

  REPLIES.each_key do |shape|
    define_method(:"test_deadline_in_a_thread_#{shape}") do
      each_offset(shape) { |http| assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { http.get("/") } } }
    end

    define_method(:"test_raise_in_a_thread_#{shape}") do
      each_offset(shape) { |http| raised(http) }
    end

    define_method(:"test_deadline_in_a_task_#{shape}") do
      each_offset(shape) do |http|
        Heddle.run { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { http.get("/") } } }
      end
    end

    define_method(:"test_cancel_of_a_task_#{shape}") do
      each_offset(shape) { |http| cancelled(http) }
    end

    define_method(:"test_stop_under_async_#{shape}") do
      each_offset(shape) do |http|
        Async do |parent|
          task = parent.async { http.get("/") }
          stalled
          task.stop
          task.wait
        end.wait
      end
    end
  end

  # A TLS record may have arrived in part, or hold more bytes than were read.
  {
    "deadline" =>
      ->(test, http) { test.assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { http.get("/") } } },
    "raise" => ->(test, http) { test.raised(http) },
    "cancel" => ->(test, http) { test.cancelled(http) }
  }.each do |name, ending|
    define_method(:"test_#{name}_over_tls") do
      @tls = ScriptedHTTPServer.new(tls: true)
      each_offset("chunked", server: @tls) { |http| ending.call(self, http) }
    ensure
      @tls&.close
    end
  end

  # The same as with stock, in threads and in tasks, and no request gets another's answer.
  REPLIES.each_key do |shape|
    %i[close reset].each do |ending|
      define_method(:"test_#{ending}_at_each_byte_#{shape}") do
        reply = REPLIES.fetch(shape)
        reply.bytesize.times do |offset|
          Heddle::NetHTTP.disable
          stock = ended_after(reply.byteslice(0, offset), ending)
          Heddle::NetHTTP.enable
          assert_equal stock, ended_after(reply.byteslice(0, offset), ending), "after #{offset} bytes"
          assert_equal stock, Heddle.run { ended_after(reply.byteslice(0, offset), ending) },
            "after #{offset} bytes, in a task"
        end
      end
    end
  end

  # A server that does not read: the request is sent in part.
  def test_in_the_middle_of_a_request
    body = "x" * 30_000_000
    connections = posts = 0
    serve = lambda do |connection|
      connections += 1
      if connection.recv(4, Socket::MSG_PEEK) == "POST"
        posts += 1
        sleep
      else
        connection.gets("\r\n\r\n")
        connection.write(FRESH[:pieces].join)
        connection.gets("\r\n\r\n")
      end
    end
    ends = {
      deadline: ->(http) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { http.post("/", body) } } },
      raise: ->(http) { raised_in_a_write { http.post("/", body) } },
      timeout: ->(http) { assert_raises(Net::WriteTimeout) { http.post("/", body) } },
      deadline_in_a_task: ->(http) {
        Heddle.run { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { http.post("/", body) } } }
      },
      cancel:
        ->(http) { Heddle.run { Heddle.spawn { http.post("/", body) }.tap { |task| sleep(0.05) && task.cancel }.wait } }
    }
    with_server(serve) do |port|
      ends.each do |name, ending|
        http = Net::HTTP.new("127.0.0.1", port, nil)
        http.write_timeout = (name == :timeout) ? 0.05 : 20
        http.start
        assert_within(3, remeasure: 0) { ending.call(http) }
        assert_equal "fresh", http.get("/").body, name.to_s
        http.finish
      end
    end
    # On a busy machine a time may be over before its request is sent: the connection is then as good as new.
    assert_operator posts, :>, 0
    assert_equal posts + ends.size, connections
  end

  # Of the block that gets the response, in the middle of the body.
  def test_break_and_throw
    bodies = {
      break: ->(http) { http.request_get("/") { |_| break } },
      throw: ->(http) { catch(:enough) { http.request_get("/") { |response| response.read_body { throw :enough } } } },
      raise: ->(http) { assert_raises(Stop) { http.request_get("/") { |response| response.read_body { raise Stop } } } }
    }
    bodies.each do |name, ask|
      REPLIES.each_value do |reply|
        converse(reply, reply.bytesize) do |http|
          ask.call(http)
          assert_equal "fresh", http.get("/").body, name.to_s
        end
      end
    end
  end

  # A response that was read may be followed by another request in its block.
  def test_a_request_in_the_block_of_another
    @server.play([[FRESH] * 3] * 3)
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      http.request_get("/1") do |response|
        assert_equal "fresh", response.read_body
        assert_equal "fresh", http.get("/2").body
      end
      assert_equal "fresh", http.get("/3").body
    end
    assert_equal 3, @server.received.size
  end

  def raised(http)
    reader = Thread.new { http.get("/") }
    reader.report_on_exception = false
    stalled(reader)
    reader.raise(Stop, "enough")
    assert_raises(Stop) { reader.value }
  end

  def cancelled(http)
    Heddle.run do
      task = Heddle.spawn { http.get("/") }
      stalled
      task.cancel
      task.wait
      assert_equal :cancelled, task.status
    end
  end

  private

  def each_offset(shape, server: @server)
    reply = REPLIES.fetch(shape)
    reply.bytesize.times do |offset|
      converse(reply, offset, server) do |http|
        assert_within(1, remeasure: 0) { yield http }
        assert_equal "fresh", http.get("/").body, "after #{offset} bytes"
      end
    end
  end

  # Unread bytes arrive with the next request on the same connection.
  def converse(reply, offset, server = @server)
    first = {pieces: [reply.byteslice(0, offset)], ending: nil}
    second = {pieces: [reply.byteslice(offset..) + reply], ending: nil}
    server.play([[first, second], [FRESH] * 3, [FRESH] * 3])
    Net::HTTP.start("127.0.0.1", server.port, nil, nil, nil, nil,
      use_ssl: server == @tls, verify_mode: OpenSSL::SSL::VERIFY_NONE) { |http| yield http }
  end

  # The client's result, and that of its next request.
  def ended_after(bytes, ending)
    @server.play([[{pieces: [bytes].reject(&:empty?), ending: ending}], [FRESH] * 3, [FRESH] * 3])
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      http.max_retries = 0
      first = begin
        http.get("/").body
      rescue => error
        [error.class, error.message]
      end
      @server.quiet
      [first, http.get("/").body]
    end
  end

  def raised_in_a_write
    writer = Thread.new { yield }
    writer.report_on_exception = false
    sleep 0.05
    wait_until { writer.stop? }
    writer.raise(Stop, "enough")
    assert_raises(Stop) { writer.value }
  end

  # Waits until the server has sent all that it will send, and the reader waits for more.
  def stalled(reader = nil)
    server = @tls || @server
    wait_until { server.received.any? && server.quiet }
    wait_until { reader.stop? } if reader
  end
end
