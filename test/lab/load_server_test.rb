# frozen_string_literal: true

require "test_helper"
require "heddle/lab"
require "socket"
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

  def get(path, *headers) = exchange("GET #{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n#{headers.map { |header| "#{header}\r\n" }.join}\r\n")

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

  def test_keep_alive_is_the_rule_in_1_1_and_the_exception_in_1_0
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
    answers = exchange("GET /60 HTTP/1.1\r\nHost: x\r\n\r\nGET /b/3 HTTP/1.1\r\nHost: x\r\n\r\nGET /0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
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
    %w[/ /x /-1 /1x /b/ /b/x /3600001 /99999999999999999999 /b/1099511627777].each do |path|
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

# The same on a server that ends with an error at the first wrong access or leak.
class SanitizedLoadServerTest < LoadServerTest
  include SanitizedServer

  def teardown
    super if @server
  end
end
