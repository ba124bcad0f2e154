# frozen_string_literal: true

require "test_helper"
require "support/certificates"
require "support/loop_helpers"
require "support/puma_load"
require "support/puma_process"
require "heddle/puma"

runs_on rubies: :ends, also: %i[oldest_puma]

# Requests to Puma with plugin :heddle: many at once on one thread, and all that an application can do with a
# connection.
class PumaRequestsTest < Minitest::Test
  include LoopHelpers
  include PumaLoad

  mode :fiber
  hard_deadline 60

  class << self
    # One for the tests that need no other configuration.
    def puma
      @puma ||= PumaProcess.new("early_hints true\n").tap do |puma|
        Minitest.after_run { puma.end }
        puma.wait_until_ready
      end
    end
  end

  def test_a_request_is_a_task
    assert_match(/\Aon Heddle::Scheduler \d+\z/, puma.get("/").body)
    assert_equal "Puma::Server", puma.get("/server").body
  end

  def test_a_configuration_without_numbers
    PumaProcess.run(fibers: nil) do |puma|
      assert_match(/\Aon Heddle::Scheduler /, puma.get("/").body)
      assert_equal Heddle::PumaSupport::Settings::FIBERS, puma.stats["max_threads"]
      assert_includes puma.written, "up to 200 requests at once, as tasks on 1 thread"
    end
  end

  # One after another they take thirty seconds, and six on five threads.
  def test_two_hundred_requests_wait_at_once
    bodies = assert_within(4, at_least: 0.15) do
      Heddle::FiberPool.new(200).map(1..200) { |id| puma.get("/waits?id=#{id}").body }
    end
    bodies.each.with_index(1) { |body, id| assert_match(/\A#{id} after nil in \d+\z/, body) }
  end

  # Requests of one connection too do not see each other's fiber-locals.
  def test_keep_alive
    Net::HTTP.start("127.0.0.1", puma.port, max_retries: 0) do |http|
      20.times { |id| assert_match(/\A#{id} after nil /, http.get("/waits?id=#{id}&count=#{id % 2}").body) }
    end
  end

  def test_pipelined_requests
    puma.connect do |socket|
      socket.write(Array.new(5) { |id| get("/waits?id=#{id}&seconds=0.0#{5 - id}&count=1") }.join)
      5.times { |id| assert_match(/\A#{id} after nil /, read_response(socket).last) }
    end
  end

  # A connection that always has a next request must not keep others waiting.
  def test_pipelined_requests_let_others_begin
    puma.connect do |socket|
      writer = in_background do
        loop { socket.write(get("/") * 50) }
      rescue SystemCallError, IOError
        nil
      end
      reader = in_background do
        loop { socket.readpartial(65_536) }
      rescue SystemCallError, IOError
        nil
      end
      3.times { assert_equal "200", puma.get("/waits?seconds=0.001").code }
      socket.close
      [writer, reader].each(&:value)
    end
  end

  def test_a_large_upload
    body = Random.bytes(3 << 20)
    request = Net::HTTP::Post.new("/upload", "Content-Type" => "application/octet-stream")
    request.body = body
    assert_equal "#{body.bytesize} #{Digest::SHA256.hexdigest(body)}", puma.request(request).body
  end

  def test_a_chunked_upload
    request = Net::HTTP::Post.new("/upload", "Transfer-Encoding" => "chunked")
    request.body_stream = StringIO.new("x" * 200_000)
    assert_equal "200000 #{Digest::SHA256.hexdigest("x" * 200_000)}", puma.request(request).body
  end

  def test_a_slow_upload_holds_nobody_up
    puma.connect do |socket|
      socket.write("POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n")
      "abcde".each_char do |char|
        socket.write(char)
        assert_equal "200", puma.get("/").code
      end
      assert_match(/\A5 /, read_response(socket).last)
    end
  end

  def test_a_slow_reader_holds_nobody_up
    size = 16 << 20
    puma.connect do |socket|
      socket.write(get("/large?size=#{size}"))
      assert_equal "HTTP/1.1 200 OK\r\n", socket.gets
      20.times { assert_equal "200", puma.get("/waits?seconds=0.001").code }
      headers = [*iter_headers(socket)]
      assert_includes headers.map(&:downcase), "content-length: #{size}\r\n"
      assert_equal size, socket.read(size).bytesize
    end
  end

  def test_hijacked
    assert_equal sse(3), puma.get("/hijacks").body
    assert_equal sse(3), puma.get("/hijacks_partly").body
  end

  def test_a_stream
    assert_equal sse(3), puma.get("/streams?id=whole&count=3").body
  end

  def test_fifty_streams_at_once
    bodies = assert_within(6) do
      Heddle::FiberPool.new(50).map(1..50) { |id| puma.get("/streams?id=#{id}&count=20").body }
    end
    assert_equal [sse(20)], bodies.uniq
  end

  def test_a_client_leaves_a_stream
    puma.connect do |socket|
      socket.write(get("/streams?id=left&count=100000"))
      assert_equal "HTTP/1.1 200 OK\r\n", socket.gets
    end
    wait_until(what: "the end of the stream") { File.exist?(path("streamed-left")) }
    assert_equal "Puma::ConnectionError", File.read(path("streamed-left"))
  end

  # Nothing is written to it any more, so no write fails.
  %w[sleep queue].product(%i[closes resets]).each do |wait, way|
    define_method("test_a_client_#{way}_while_a_stream_waits_in_a_#{wait}") do
      id = "#{wait}-#{way}"
      puma.connect { |socket| leave_stream(socket, id, wait: wait, reset: way == :resets) }
      assert_stream_left(puma, id)
    end
  end

  def test_a_client_leaves_a_stream_over_tls
    PumaProcess.run(bind: "ssl://127.0.0.1:PORT?cert=cert&key=key", tls: true, files: pair) do |puma|
      puma.connect do |socket|
        tls = OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect)
        leave_stream(tls, "tls")
      end
      assert_stream_left(puma, "tls")
    end
  end

  def test_a_client_leaves_a_stream_on_a_unix_socket
    PumaProcess.run("bind 'unix://web'") do |puma|
      UNIXSocket.open(File.join(puma.folder, "web")) { |socket| leave_stream(socket, "unix") }
      assert_stream_left(puma, "unix")
    end
  end

  def test_two_hundred_clients_leave_their_streams_at_once
    skip "without POLLRDHUP the next write notices a client that has left" if portable_build?

    PumaProcess.run do |puma|
      sockets = Array.new(200) { TCPSocket.new("127.0.0.1", puma.port) }
      sockets.each.with_index { |socket, id| socket.write(get("/waits_in_a_stream?id=#{id}")) }
      sockets.each { |socket| wait_for_event(socket) }
      assert_equal 200, puma.stats["running"]
      sockets.each(&:close)
      wait_until(what: "the end of the streams") { puma.stats["running"].zero? }
      200.times { |id| assert_match(/\APuma::ConnectionError /, File.read(File.join(puma.folder, "waited-#{id}"))) }
      assert_match(/\A0 after nil /, puma.get("/waits?id=0").body)
    ensure
      sockets&.each(&:close)
    end
  end

  def test_a_client_leaves_a_hijacked_connection
    puma.connect do |socket|
      socket.write(get("/subscribes?id=gone"))
      assert_equal "HTTP/1.1 200 OK\r\n", socket.gets
    end
    wait_until(what: "the end of the subscription") { File.exist?(path("unsubscribed-gone")) }
    assert_match(/\AErrno::(EPIPE|ECONNRESET)\z/, File.read(path("left-gone")))
  end

  def test_early_hints
    puma.connect do |socket|
      socket.write(get("/hints"))
      hints, = read_response(socket, body: false)
      assert_equal ["HTTP/1.1 103 Early Hints\r\n", "link: </style.css>; rel=preload\r\n"], hints
      assert_equal "hinted", read_response(socket).last
    end
  end

  def test_after_reply
    assert_equal "replied", puma.get("/after").body
    wait_until(what: "the call after the reply") { File.exist?(path("after")) }
  end

  # Puma's extra threads are for pools of few threads.
  def test_marked_as_bound_by_io
    assert_equal "marked", puma.get("/io_bound").body
  end

  def test_an_error_of_the_application
    response = puma.get("/fails")
    assert_equal "500", response.code
    assert_includes puma.written, "a fault of the application"
  end

  def test_error_handler
    PumaProcess.run("lowlevel_error_handler { |error, env, status| [status, {}, [error.message]] }") do |puma|
      assert_equal ["500", "a fault of the application"], [puma.get("/fails").code, puma.get("/fails").body]
      assert_match(/HTTP/, puma.connect { |socket| socket.write("GARBAGE\r\n\r\n") && socket.read })
    end
  end

  def test_unix_socket
    PumaProcess.run("bind 'unix://web'") do |puma|
      bodies = Heddle::FiberPool.new(20).map(1..20) do |id|
        UNIXSocket.open(File.join(puma.folder, "web")) do |socket|
          socket.write(get("/waits?id=#{id}"))
          read_response(socket).last
        end
      end
      assert_equal((1..20).to_a, bodies.map(&:to_i))
    end
  end

  def test_tls
    PumaProcess.run(bind: "ssl://127.0.0.1:PORT?cert=cert&key=key", tls: true, files: pair) do |puma|
      bodies = assert_within(5) { Heddle::FiberPool.new(50).map(1..50) { |id| puma.get("/waits?id=#{id}").body.to_i } }
      assert_equal (1..50).to_a, bodies
      assert_equal 4 << 20, puma.get("/large?size=#{4 << 20}").body.bytesize
      request = Net::HTTP::Post.new("/upload")
      request.body = "y" * (1 << 20)
      assert_equal "#{1 << 20} #{Digest::SHA256.hexdigest(request.body)}", puma.request(request).body
    end
  end

  # No thread of a reactor: a fiber reads the request.
  def test_without_a_queue_of_requests
    PumaProcess.run("queue_requests false") do |puma|
      puma.connect do |slow|
        slow.write("GET /waits?id=slow HTTP/1.1\r\n")
        assert_equal (1..20).to_a, Heddle::FiberPool.new(20).map(1..20) { |id| puma.get("/waits?id=#{id}").body.to_i }
        slow.write("Host: h\r\n\r\n")
        assert_match(/\Aslow after nil /, read_response(slow).last)
      end
    end
  end

  def test_several_threads
    PumaProcess.run(threads: 3, fibers: 60) do |puma|
      bodies = assert_within(5) { Heddle::FiberPool.new(60).map(1..60) { |id| puma.get("/waits?id=#{id}").body.to_i } }
      assert_equal (1..60).to_a, bodies
      assert_equal 60, puma.stats["max_threads"]
    end
  end

  def test_statistics_count_requests
    PumaProcess.run(fibers: 3) do |puma|
      held = hold(puma, 5, began: 3)
      wait_for_backlog(puma, 2)
      stats = puma.stats
      assert_statistics({"running" => 3, "pool_capacity" => 0, "busy_threads" => 3 + stats["backlog"],
                         "max_threads" => 3}, stats)
      let_go(puma)
      assert_equal Array.new(5) { |id| "held #{id}" }, held.map(&:value)
      wait_until(what: "the end of the requests") { puma.stats["running"].zero? }
      assert_statistics({"backlog" => 0, "running" => 0, "pool_capacity" => 3, "busy_threads" => 0,
                         "requests_count" => 6}, puma.stats)
    end
  end

  def test_out_of_band
    PumaProcess.run("out_of_band { sleep(0.05); File.write('out-of-band', ''.dup << 'x', mode: 'a') }") do |puma|
      wait_until(what: "the work between requests") { File.exist?(File.join(puma.folder, "out-of-band")) }
      assert_equal (1..20).to_a, Heddle::FiberPool.new(20).map(1..20) { |id| puma.get("/waits?id=#{id}").body.to_i }
      wait_until(what: "the work behind them") { File.size(File.join(puma.folder, "out-of-band")) > 1 }
    end
  end

  def test_a_request_that_computes_is_reported
    PumaProcess.run("heddle fibers: 10, stall: 0.2") do |puma|
      assert_equal "computed", puma.get("/computes?seconds=0.8").body
      wait_until(what: "the report") { puma.written.include?("has kept the others of its thread waiting for 0.") }
      assert_match(/config\.ru:\d+:in .*computes/, puma.written)
    end
  end

  # Requests for which the system has no fiber wait until others end.
  def test_the_memory_map_limit_is_named_and_loses_no_request
    PumaProcess.run(threads: 1) do |puma|
      assert_equal "filled", puma.get("/fills?left=80").body
      held = hold(puma, 100, began: 5)
      wait_until(what: "the report") { puma.written.include?("vm.max_map_count") }
      assert_match(/^heddle: requests wait for the end of others: cannot start another fiber/, puma.written)
      let_go(puma)
      assert_equal Array.new(100) { |id| "held #{id}" }, held.map(&:value)
      assert_equal "200", puma.get("/waits").code
    end
  end

  def test_a_request_kills_the_thread
    PumaProcess.run(fibers: 10) do |puma|
      held = in_background { puma.get("/held?id=1").code }
      wait_until(what: "the other request") { File.exist?(File.join(puma.folder, "began-1")) }
      assert_raises(EOFError, Errno::ECONNRESET) { puma.get("/kills") }
      assert_equal "500", held.value
      assert_equal "200", puma.get("/waits").code
      wait_until(what: "the end of the requests") { puma.stats["running"].zero? }
    end
  end

  private

  def puma = self.class.puma

  def path(name) = File.join(puma.folder, name)

  def wait_for_event(socket)
    line = socket.gets until line == "data: first\n"
  end

  # Asks for a stream, and leaves when it has begun.
  def leave_stream(socket, id, wait: "sleep", reset: false)
    skip "without POLLRDHUP the next write notices a client that has left" if portable_build?

    socket.write(get("/waits_in_a_stream?id=#{id}&in=#{wait}"))
    wait_for_event(socket)
    socket.setsockopt(Socket::Option.linger(true, 0)) if reset
    socket.close
  end

  def assert_stream_left(puma, id)
    wait_until(what: "the end of the stream") { File.exist?(File.join(puma.folder, "closed-#{id}")) }
    assert_match(/\APuma::ConnectionError /, File.read(File.join(puma.folder, "waited-#{id}")))
  end

  # Puma 6.4 has no busy_threads.
  def assert_statistics(expected, stats)
    assert_equal expected.slice(*stats.keys), stats.slice(*expected.keys)
  end

  def pair
    certificate, key = Certificates.server
    {"cert" => certificate.to_pem, "key" => key.to_pem}
  end

  def get(path) = "GET #{path} HTTP/1.1\r\nHost: h\r\n\r\n"

  def sse(count) = Array.new(count) { |i| "data: #{i}\n\n" }.join

  def iter_headers(socket)
    headers = []
    while (line = socket.gets) && line != "\r\n"
      headers << line
    end
    headers
  end

  # Of a response with a Content-Length.
  def read_response(socket, body: true)
    headers = iter_headers(socket)
    length = headers.grep(/\Acontent-length: (\d+)/i) { $1.to_i }.first
    [headers, (socket.read(length) if body)]
  end
end
