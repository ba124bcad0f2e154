# frozen_string_literal: true

require "test_helper"
require "heddle/lab"
require "net/http"
require "socket"
require "stringio"
require "zlib"
require "support/sanitized_server"

class LoadServerTest < Minitest::Test
  LoadServer = Heddle::Lab::LoadServer

  def program = LoadServer.program

  def setup
    @server = LoadServer.start(program: program)
  end

  def teardown
    status = @server.stop
    assert status.nil? || status.success?, "the server ended with #{status.inspect}"
  end

  def open = TCPSocket.new(@server.host, @server.port)

  # Sends the bytes and reads until the server closes.
  def exchange(bytes)
    open.then do |socket|
      socket.write(bytes)
      socket.read
    ensure
      socket.close
    end
  end

  def get(path, *headers) =
    exchange("GET #{path} HTTP/1.1\r\nHost: x\r\nConnection: " \
      "close\r\n#{headers.map { |header| "#{header}\r\n" }.join}\r\n")

  def status_of(answer) = answer[/\AHTTP\/1\.1 (\d+) /, 1]

  def read_answer(socket)
    head = socket.gets("\r\n\r\n")
    [head, socket.read(head[/Content-Length: (\d+)/, 1].to_i)]
  end

  def test_answers_after_the_delay
    answer = assert_within(0.3, at_least: 0.1) { get("/100") }
    assert_equal "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone", answer
    assert_within(0.1) { get("/0") }
  end

  def test_many_delays_pass_side_by_side
    assert_within(0.9, at_least: 0.3) do
      sockets = Array.new(50) { open }
      sockets.each { |socket| socket.write("GET /300 HTTP/1.1\r\nHost: x\r\n\r\n") }
      assert(sockets.all? { |socket| read_answer(socket).last == "done" })
    ensure
      sockets&.each(&:close)
    end
  end

  def test_shorter_delays_are_answered_first
    waits = {90 => open, 30 => open, 60 => open}
    waits.each { |delay, socket| socket.write("GET /#{delay} HTTP/1.0\r\n\r\n") }
    order = Array.new(3) do
      ready = IO.select(waits.values).first.first
      waits.key(ready).tap { |delay| waits.delete(delay).close }
    end
    assert_equal [30, 60, 90], order
  end

  def test_bodies_of_any_size
    [0, 1, 15, 16, 70_000, LoadServer::PATTERN_SIZE + 17, 40 << 20].each do |bytes|
      head, body = get("/b/#{bytes}").split("\r\n\r\n", 2)
      assert_includes head, "Content-Length: #{bytes}"
      assert_equal LoadServer.body(bytes), body.b, "a body of #{bytes} bytes"
    end
  end

  # Where a chunk, the pattern and the compressed form's pieces begin and end.
  SIZES = [0, 1, 41, 42, 57, 58, 59, 73, 74, 75, 16_383, 16_384, 16_385, 70_000, LoadServer::PATTERN_SIZE - 1,
    LoadServer::PATTERN_SIZE,
    LoadServer::PATTERN_SIZE + 17, 3 * LoadServer::PATTERN_SIZE + 12_345].freeze

  def test_bodies_in_chunks
    SIZES.each do |bytes|
      head, body = get("/c/#{bytes}").split("\r\n\r\n", 2)
      assert_includes head, "Transfer-Encoding: chunked"
      sizes, whole = [], +""
      body = StringIO.new(body)
      until sizes.last&.zero?
        sizes << body.gets("\r\n").hex
        whole << body.read(sizes.last)
        assert_equal "\r\n", body.read(2)
      end
      assert_equal LoadServer.body(bytes), whole.b, "a body of #{bytes} bytes"
      assert_equal [16_384] * (bytes / 16_384) + [bytes % 16_384, 0].uniq, sizes
      assert_empty body.read
    end
    assert_match(/\r\nContent-Length: 100\r\n.*\r\n\r\n.{100}\z/m, exchange("GET /c/100 HTTP/1.0\r\n\r\n"),
      "1.0 knows no chunks")
  end

  def test_compressed_bodies
    SIZES.each do |bytes|
      head, body = get("/z/#{bytes}").split("\r\n\r\n", 2)
      assert_includes head, "Content-Encoding: gzip"
      assert_includes head, "Content-Length: #{body.bytesize}\r\n"
      assert_equal LoadServer.body(bytes), Zlib.gunzip(body), "a body of #{bytes} bytes"
      assert_operator body.bytesize, :<, bytes * 0.4 if bytes > 16_000
    end
    assert_equal "404", status_of(get("/z/4294967296"))
  end

  def test_the_head_of_a_chunked_or_compressed_body_alone
    %w[/c/100 /z/100].each do |path|
      assert_match(/\AHTTP.*\r\n\r\n\z/m, exchange("HEAD #{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    end
  end

  def test_uploads_are_counted_and_compared
    Net::HTTP.start(@server.host, @server.port) do |http|
      SIZES.each do |bytes|
        answer = %({"bytes":#{bytes},"right":true}\n)
        body = LoadServer.body(bytes)
        assert_equal answer, http.put("/u", body).body
        chunked = Net::HTTP::Post.new("/u", "Transfer-Encoding" => "chunked")
        chunked.body_stream = StringIO.new(body)
        assert_equal answer, http.request(chunked).body
      end
      body = LoadServer.body(70_000)
      body.setbyte(69_999, 0)
      assert_equal %({"bytes":70000,"right":false}\n), http.put("/u", body).body
      assert_equal "done", http.get("/0").body, "the connection is still good"
    end
    assert_equal 2, @server.stats["connections"]
  end

  def test_uploads_byte_by_byte_and_with_every_feature_of_chunks
    socket = open
    "PUT /u HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0A;name=value\r\n0000000000\r\n6\r\n00000\n\r\n" \
      "0\r\nA: b\r\n\r\n".each_char { |byte| socket.write(byte) }
    assert_equal %({"bytes":16,"right":true}\n), read_answer(socket).last
    socket.write("PUT /u HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n00GET /0 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_equal [%({"bytes":2,"right":true}\n), "done"], [read_answer(socket).last, read_answer(socket).last]
    socket.write("PUT /u HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert_equal "HTTP/1.1 100 Continue\r\n\r\n", socket.gets("\r\n\r\n")
    socket.write("00")
    assert_equal %({"bytes":2,"right":true}\n), read_answer(socket).last
  end

  def test_invalid_uploads
    head = "PUT /u HTTP/1.1\r\nHost: x\r\n"
    {
      "Transfer-Encoding: chunked\r\n\r\nx\r\n" => "400", "Transfer-Encoding: chunked\r\n\r\n2\r\n000\r\n" => "400",
      "Transfer-Encoding: chunked\r\n\r\n\r\n" => "400",
      "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" => "400",
      "Transfer-Encoding: chunked\r\n\r\n1;#{"x" * 9000}" => "400", "Transfer-Encoding: gzip\r\n\r\n" => "400",
      "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" => "400",
      "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" => "400",
      "Content-Length: -1\r\n\r\n" => "400", "Content-Length: \r\n\r\n" => "400",
      "Content-Length: 9999999999999999\r\n\r\n" => "400"
    }.each { |rest, status| assert_equal status, status_of(exchange(head + rest)), rest[0, 60].inspect }
    assert_equal "405", status_of(exchange("POST /0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
  end

  def test_a_client_that_goes_in_the_middle_of_its_upload_leaves_nothing
    open.tap { |socket| socket.write("PUT /u HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n000") }.close
    wait_until { @server.stats.values_at("open", "requests").then { |open, requests| open == 1 && requests > 1 } }
  end

  def test_keep_alive_is_the_default_in_1_1_only
    socket = open
    2.times do
      socket.write("GET /0 HTTP/1.1\r\nHost: x\r\n\r\n")
      assert_equal "done", read_answer(socket).last
    end
    socket.write("GET /0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert_includes read_answer(socket).first, "Connection: keep-alive"
    socket.write("GET /0 HTTP/1.0\r\n\r\n")
    assert_includes read_answer(socket).first, "Connection: close"
    assert_nil socket.gets
    assert_equal 1, @server.stats["connections"] - 1
  end

  def test_pipelined_requests_are_answered_in_order
    answers = exchange("GET /60 HTTP/1.1\r\nHost: x\r\n\r\nGET /b/3 HTTP/1.1\r\nHost: x\r\n\r\nGET /0 HTTP/1.1\r\n" \
      "Host: x\r\nConnection: close\r\n\r\n")
    assert_equal %w[done 000 done], answers.split(/HTTP.*?\r\n\r\n/m).drop(1)
  end

  def test_more_pipelined_requests_than_one_read_holds
    socket = open
    count = 5000
    writer = Thread.new { socket.write("GET /0 HTTP/1.1\r\nHost: a.rather.long.name.example\r\n\r\n" * count) }
    assert(Array.new(count) { read_answer(socket).last }.all?("done"))
    writer.join
  end

  def test_a_request_in_single_bytes
    socket = open
    "GET /1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".each_char { |byte| socket.write(byte) }
    assert_equal "200", status_of(socket.read)
  end

  def test_head_has_no_body
    answer = exchange("HEAD /b/100 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert_equal "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\n", answer
  end

  def test_bad_input_is_refused
    {
      "nonsense\r\n\r\n" => "400", "GET /0 HTTP/1.1\r\n\r\n" => "400", "GET /0 HTTP/1.1\nHost: x\n\n" => "400",
      "GET /0 HTTP/1.1\r\nHost : x\r\n\r\n" => "400", "GET /0 HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n" => "400",
      "GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n" => "400", "GET /0 HTTP/2.0\r\nHost: x\r\n\r\n" => "505",
      "POST /0 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" => "413",
      "GET /0 HTTP/1.1\r\nHost: x\r\nX: #{"y" * 9000}\r\n\r\n" => "431", "G" * 20_000 => "431"
    }.each { |bytes, status| assert_equal status, status_of(exchange(bytes)), bytes[0, 60].inspect }
    assert_equal "405", status_of(exchange("DELETE /0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
  end

  def test_unknown_paths_and_numbers_beyond_the_limits
    %w[/ /x /-1 /1x /b/ /b/x /c/ /z/x /3600001 /99999999999999999999 /b/1099511627777].each do |path|
      assert_equal "404", status_of(get(path)), path
    end
    assert_equal "200", status_of(get("/0?query"))
    assert_equal "200", status_of(get("http://elsewhere/0"))
  end

  def test_the_answer_to_a_large_refused_body_arrives
    answer = exchange("POST /0 HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n#{"z" * 200_000}")
    assert_equal "413", status_of(answer)
  end

  def test_a_client_that_goes_while_it_waits_leaves_nothing
    open.tap { |socket| socket.write("GET /60000 HTTP/1.1\r\nHost: x\r\n\r\n") }.tap { |socket|
      wait_until { @server.stats["requests"] >= 1 }
      socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
    }.close
    wait_until(what: "the reset") { @server.stats["open"] == 1 }
  end

  def test_ten_thousand_connections_at_once
    hard = Process.getrlimit(:NOFILE).last
    skip "the hard limit is #{hard} descriptors; this needs 10200" if hard < 10_200

    before = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, hard)
    sockets = Array.new(10_000) { open }
    sockets.each { |socket| socket.write("GET /1000 HTTP/1.1\r\nHost: x\r\n\r\n") }
    assert(sockets.all? { |socket| read_answer(socket).last == "done" })
    assert_operator @server.stats["most_open"], :>=, 10_000
  ensure
    sockets&.each(&:close)
    Process.setrlimit(:NOFILE, *before) if before
  end

  def test_counts
    get("/0")
    get("/nowhere")
    stats = @server.stats
    assert_equal [3, 1, 3, 1], stats.values_at("connections", "open", "requests", "refused")
    assert_operator stats["cpu_user"] + stats["cpu_system"], :>=, 0
  end

  def test_a_port_in_use_is_a_clear_error
    error = assert_raises(Heddle::Lab::Error) { LoadServer.start(port: @server.port, program: program) }
    assert_match(/cannot listen on 127\.0\.0\.1:#{@server.port}: Address already in use/, error.message)
  end

  def test_ends_with_its_parent
    reader, writer = IO.pipe
    parent = fork do
      server = LoadServer.start(program: program)
      writer.puts(server.pid, server.port)
      sleep
    end
    pid, port = reader.gets.to_i, reader.gets.to_i
    Process.kill(:KILL, parent)
    Process.wait(parent)
    wait_until(what: "the end of the server") { gone?(pid) }
    assert_raises(Errno::ECONNREFUSED) { TCPSocket.new("127.0.0.1", port) }
  end

  private

  # A container's init may leave it unreaped: a zombie has ended too.
  def gone?(pid)
    File.read("/proc/#{pid}/stat")[/\) (\w)/, 1] == "Z"
  rescue Errno::ENOENT, Errno::ESRCH
    true
  end
end

# The same on a server built to stop with an error at the first invalid access or leak.
class SanitizedLoadServerTest < LoadServerTest
  include SanitizedServer

  def teardown
    super if @server
  end
end
