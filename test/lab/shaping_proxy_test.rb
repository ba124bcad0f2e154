# frozen_string_literal: true

require "test_helper"
require "heddle/lab"
require "net/http"
require "open3"
require "socket"
require "support/dead_network"
require "support/sanitized_server"
require "tmpdir"

runs_on short: false

# Each setting of the proxy, with real servers. Times are bounded loosely above, and strictly below: bytes never come
# too early.
class ShapingProxyTest < Minitest::Test
  include DeadNetworkHelpers

  LoadServer = Heddle::Lab::LoadServer
  ShapingProxy = Heddle::Lab::ShapingProxy

  def program = ShapingProxy.program

  def setup
    @program = program
    @closing = []
    @proxies = []
  end

  def teardown
    statuses = @proxies.map(&:stop)
    @closing.each(&:close)
    assert statuses.compact.all?(&:success?), "a proxy ended with #{statuses.inspect}"
  end

  # The HTTP server behind, or the block, which serves each connection in a thread.
  def proxy(upstream = nil, **settings, &serve)
    upstream ||= "127.0.0.1:#{serve ? serve_with(serve) : load_server.port}"
    ShapingProxy.start(upstream, program: @program, **settings).tap { |started| @proxies << started }
  end

  def load_server
    @load_server ||= LoadServer.start
      .tap { |server| @closing << Struct.new(:server) { def close = server.stop }.new(server) }
  end

  def serve_with(serve)
    server = TCPServer.new("127.0.0.1", 0).tap { |listening| @closing << listening }
    Thread.new do
      loop do
        Thread.new(server.accept) do |connection|
          serve.call(connection)
        rescue SystemCallError, IOError
          nil
        ensure
          connection.close
        end
      end
    rescue IOError
      nil
    end
    server.addr[1]
  end

  def connect_to(proxy) = TCPSocket.new(proxy.host, proxy.port).tap { |socket| @closing << socket }

  def get(proxy, path) = Net::HTTP.start(proxy.host, proxy.port, nil) { |http| http.get(path).body }

  # What arrives within the time, and how it ended: :open, :end or :reset.
  def receive(socket, within)
    bytes, limit = +"", monotonic + within
    loop do
      left = limit - monotonic
      return [bytes, :open] unless left.positive? && socket.wait_readable(left)

      bytes << socket.readpartial(65_536)
    end
  rescue EOFError
    [bytes, :end]
  rescue Errno::ECONNRESET
    [bytes, :reset]
  end

  ECHO = ->(connection) { IO.copy_stream(connection, connection) }
  ALPHABET = ->(connection) { connection.write("abcdefghij") while connection.gets }

  def test_every_byte_is_passed_on
    through = proxy
    [0, 1, 70_000, 10 << 20].each do |bytes|
      assert_equal LoadServer.body(bytes), get(through, "/b/#{bytes}").b, "a body of #{bytes} bytes"
    end
    counts = through.stats
    assert_equal [4, 0, 0, 0], counts.values_at("connections", "failed", "resets", "idle")
    assert_operator counts["reply_bytes"], :>, 10 << 20
  end

  def test_both_directions_at_once
    socket = connect_to(proxy(&ECHO))
    sent = Random.bytes(8 << 20)
    writer = Thread.new { socket.write(sent).tap { socket.close_write } }
    assert_equal sent, socket.read
    assert_equal sent.bytesize, writer.value
  end

  def test_delay_is_added_to_each_reply
    through = proxy(delay: 0.15)
    body = assert_within(0.45, at_least: 0.15) { get(through, "/0") }
    assert_equal "done", body
    socket = connect_to(through)
    2.times do
      assert_within(0.45, at_least: 0.15) do
        socket.write("GET /0 HTTP/1.1\r\nHost: x\r\n\r\n")
        socket.gets("done")
      end
    end
  end

  def test_delays_of_many_connections_pass_side_by_side
    through = proxy(delay: 0.3)
    assert_within(1.2, at_least: 0.3) do
      sockets = Array.new(50) { connect_to(through) }
      sockets.each { |socket| socket.write("GET /0 HTTP/1.0\r\n\r\n") }
      assert(sockets.all? { |socket| socket.read.end_with?("done") })
    end
  end

  def test_requests_and_both_directions
    through = proxy(delay: 0.1, direction: "requests")
    assert_within(0.4, at_least: 0.1) { get(through, "/0") }
    through.shape(delay: 0.1, direction: "both")
    assert_within(0.6, at_least: 0.2) { get(through, "/0") }
  end

  def test_jitter_keeps_the_order
    through = proxy(delay: 0.02, jitter: 0.05) { |connection|
      100.times { |i| connection.write(format("%03d", i)) && sleep(0.001) }
    }
    assert_equal Array.new(100) { |i| format("%03d", i) }.join, connect_to(through).read
  end

  def test_rate
    through = proxy(rate: 20 << 20)
    body = assert_within(1.5, at_least: 0.48) { get(through, "/b/#{10 << 20}") }
    assert_equal LoadServer.body(10 << 20), body.b
    through.shape(rate: 50) # a byte at a time
    assert_within(1.5, at_least: 0.35) { assert_equal 20, receive_some(through, 20).bytesize }
  end

  def test_replies_drip_byte_by_byte
    through = proxy(drip: 0.05, &ALPHABET)
    assert_within(1.2, at_least: 0.44) { assert_equal "abcdefghij", receive_some(through, 10) }
  end

  def receive_some(through, bytes)
    socket = connect_to(through)
    socket.write("GET /0 HTTP/1.0\r\n\r\n")
    socket.read(bytes)
  end

  def test_a_receiver_that_does_not_read_slows_the_sender_down
    written = 0
    through = proxy { |connection| loop { written += connection.write("x" * 65_536) } }
    socket = connect_to(through)
    wait_until(what: "the first bytes") { written > 0 }
    before = nil
    wait_until(what: "the sender to be held up") { written == before || !(before = written).tap { sleep 0.3 } }
    assert_operator written, :<, 40 << 20 # what the proxy holds, and the kernel's buffers
    assert_operator rss_kib(through.pid), :<, 64 << 10 unless is_a?(SanitizedShapingProxyTest)
    received = 0
    received += socket.readpartial(1 << 20).bytesize while received < 60 << 20
    assert_operator written, :>, 55 << 20
  end

  def test_replies_stall
    socket = connect_to(proxy(stall_at: 4, &ALPHABET))
    socket.puts
    assert_equal ["abcd", :open], receive(socket, 0.4)
    socket.close_write # nor does its end arrive
    assert_equal ["", :open], receive(socket, 0.3)
  end

  def test_a_stall_at_zero_bytes_is_silence
    socket = connect_to(proxy(stall_at: 0, &ALPHABET))
    socket.puts
    assert_equal ["", :open], receive(socket, 0.3)
  end

  def test_the_client_is_reset
    outcome = Thread::Queue.new
    through = proxy(reset_at: 4) do |connection|
      ALPHABET.call(connection)
    rescue Errno::ECONNRESET => error
      outcome << error.class
    end
    socket = connect_to(through)
    socket.puts
    assert_equal ["abcd", :reset], receive(socket, 5)
    assert_equal Errno::ECONNRESET, outcome.pop # the server behind gets one, too
  end

  def test_a_reset_instead_of_the_first_byte_or_the_end
    socket = connect_to(proxy(reset_at: 0, &ALPHABET))
    assert_equal ["", :open], receive(socket, 0.1)
    socket.puts
    assert_equal ["", :reset], receive(socket, 5)
    # The line proves that the client has seen itself connected: a reset before that is an error of its connect.
    socket = connect_to(proxy(reset_at: 3) { |connection| connection.gets && connection.write("abc") })
    socket.puts
    assert_equal ["abc", :reset], receive(socket, 5)
  end

  # The reset does not overtake bytes that the client is slow to read.
  def test_a_reset_does_not_overtake
    bytes = 1 << 20
    socket = connect_to(proxy(reset_at: bytes) { |connection| connection.gets && connection.write("x" * bytes * 2) })
    socket.puts
    sleep 0.1
    received, ended = receive(socket, 5)
    assert_equal [bytes, :reset], [received.bytesize, ended]
  end

  def test_close
    socket = connect_to(proxy(close_at: 4, &ALPHABET))
    socket.write("\n" * 1000)
    assert_equal ["abcd", :end], receive(socket, 5)
  end

  def test_close_also_ends_the_servers_connection
    ended = Thread::Queue.new
    socket = connect_to(proxy(close_at: 0) { |connection| connection.write("x") && ended.push(connection.read) })
    assert_equal ["", :end], receive(socket, 5)
    socket.close
    assert_equal "", ended.pop
  end

  def test_a_half_close_is_passed_on_both_ways
    through = proxy { |connection| connection.write(connection.read.reverse) }
    socket = connect_to(through)
    socket.write("abc")
    socket.close_write
    assert_equal "cba", socket.read

    through = proxy { |connection| connection.close_write.then { @heard = connection.read } }
    socket = connect_to(through)
    assert_nil socket.read(1)
    socket.write("still heard")
    socket.close
    wait_until { @heard == "still heard" }
    wait_until(what: "the end of the connection") { through.stats["open"].zero? }
  end

  def test_an_end_waits_for_the_bytes_before_it
    socket = connect_to(proxy(delay: 0.2) { |connection| connection.write("late") })
    assert_equal ["late", :end], assert_within(0.9, at_least: 0.15) { receive(socket, 5) }
  end

  def test_a_reset_of_the_client_is_passed_on
    seen = Thread::Queue.new
    through = proxy do |connection|
      seen << :connected
      connection.read
      seen << :end
    rescue SystemCallError => error
      seen << error.class
    end
    socket = connect_to(through)
    seen.pop
    reset(socket)
    assert_equal Errno::ECONNRESET, seen.pop
  end

  # The client's end came before; its reset is seen all the same, while the replies stall.
  def test_a_reset_after_a_half_close
    through = proxy(stall_at: 1) { |connection| connection.read.then { connection.write("abc") } && sleep }
    socket = connect_to(through)
    socket.close_write
    assert_equal "a", socket.read(1)
    reset(socket)
    wait_until(what: "the end of the connection") { through.stats["open"].zero? }
  end

  def test_a_reset_of_the_server_is_passed_on
    socket = connect_to(proxy { |connection| connection.gets && connection.write("abc").then { reset(connection) } })
    socket.puts
    assert_equal ["abc", :reset], receive(socket, 5)
  end

  def reset(socket)
    socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
    socket.close
  end

  def test_a_missing_server_causes_a_reset_and_a_message
    # Bound, and not listening: no other program gets the port.
    nobody = Socket.new(:INET, :STREAM).tap { |socket| socket.bind(Addrinfo.tcp("127.0.0.1", 0)) && @closing << socket }
    through = proxy("127.0.0.1:#{nobody.local_address.ip_port}")
    2.times do
      assert_includes [["", :reset], ["", :end]], receive(connect_to(through), 5)
    rescue Errno::ECONNRESET
      nil # it came before the connect was seen to have ended
    end
    assert_equal [2, 0], through.stats.values_at("failed", "open")
  end

  def test_a_server_on_a_unix_socket
    Dir.mktmpdir do |folder|
      path = File.join(folder, "socket")
      server = UNIXServer.new(path)
      server.listen(1) # full at once: the proxy must ask again
      through = proxy("unix:#{path}")
      sockets = Array.new(20) { |i| connect_to(through).tap { |socket| socket.puts("hello #{i}") } }
      replies = Thread.new do
        20.times do
          connection = server.accept
          connection.write(connection.gets.upcase)
          connection.close
        end
      end
      assert_equal Array.new(20) { |i| "HELLO #{i}\n" }, sockets.map(&:read)
      replies.join
      server.close
    end
  end

  def test_a_server_given_by_name
    assert_equal "done", get(proxy("localhost:#{load_server.port}"), "/0")
  end

  # localhost is ::1 first where Debian's installer wrote the hosts file, and servers listen on 127.0.0.1.
  def test_a_name_whose_first_addresses_refuse
    network = dead_network(
      hosts: {"::1" => ["several.example"], "127.0.0.2" => ["several.example"], "127.0.0.1" => ["several.example"]}
    )
    program = <<~RUBY
      require "heddle/lab"
      require "net/http"
      Heddle::Lab::LoadServer.start do |server|
        Heddle::Lab::ShapingProxy.start("several.example:\#{server.port}", program: #{@program.inspect}) do |proxy|
          puts Array.new(3) { Net::HTTP.get(proxy.host, "/0", proxy.port) }
          puts proxy.stats.values_at("connections", "failed").inspect
        end
        Heddle::Lab::ShapingProxy.start("several.example:1", program: #{@program.inspect}) do |proxy|
          socket = TCPSocket.new(proxy.host, proxy.port)
          socket.read rescue nil # what tells of a reset may be taken by the connect that has just ended
          puts proxy.stats.values_at("connections", "failed").inspect
        end
      end
    RUBY
    lab = File.expand_path("../../lab/lib", __dir__)
    out, err, = Open3.capture3(*network.launcher, RbConfig.ruby, "-I", lab, "-e", program)
    assert_equal ["done", "done", "done", "[3, 0]", "[1, 1]"], out.lines(chomp: true), err
  end

  def test_another_shape_for_open_connections
    through = proxy(&ALPHABET)
    socket = connect_to(through)
    socket.puts
    assert_equal "abcdefghij", socket.read(10)
    through.shape(stall_at: 3)
    socket.puts
    assert_equal ["abc", :open], receive(socket, 0.3)
    other = connect_to(through)
    other.puts
    assert_equal ["abc", :open], receive(other, 0.3)
    through.pass # the held bytes arrive
    assert_equal "defghij", socket.read(7)
    through.reset
    assert_equal ["", :reset], receive(socket, 5)
    assert_equal ["defghij", :reset], receive(other, 5)
  end

  def test_idle_connections_are_closed
    through = proxy(idle: 1, &ECHO)
    socket = connect_to(through)
    assert_within(3, at_least: 1.3) do
      sleep 0.4
      socket.write("x")
      assert_equal ["x", :end], receive(socket, 5)
    end
    assert_equal [1, 0], through.stats.values_at("idle", "open")
  end

  def test_ten_thousand_connections
    hard = Process.getrlimit(:NOFILE).last
    skip "the hard limit is #{hard} descriptors; this needs 4000" if hard < 4000

    before = Process.getrlimit(:NOFILE)
    Process.setrlimit(:NOFILE, hard)
    count = [10_000, (hard - 100) / 2].min # the proxy has two for each
    through = proxy(delay: 0.2)
    sockets = Array.new(count) { connect_to(through) }
    sockets.each { |socket| socket.write("GET /200 HTTP/1.0\r\n\r\n") }
    assert(sockets.all? { |socket| socket.read.end_with?("done") })
    assert_equal count, through.stats["most_open"]
    sockets.each(&:close)
    wait_until(what: "the end of every connection") { through.stats["open"].zero? }
  ensure
    Process.setrlimit(:NOFILE, *before) if before
  end

  # It pauses while no descriptor is free, and continues when some are free again.
  def test_the_descriptor_limit
    launcher = File.join(Dir.tmpdir, "heddle-few-descriptors-#{Process.pid}")
    File.write(launcher, "#!/bin/sh\nulimit -n 40\nexec #{@program} \"$@\"\n", perm: 0o755)
    through = ShapingProxy.start("127.0.0.1:#{load_server.port}", program: launcher)
      .tap { |started| @proxies << started }
    sockets = Array.new(100) { connect_to(through) }
    served = sockets.count do |socket|
      socket.write("GET /0 HTTP/1.0\r\n\r\n")
      receive(socket, 5).first.end_with?("done")
    ensure
      socket.close
    end
    assert_equal 100, served
    assert_equal "done", get(through, "/0")
  ensure
    File.delete(launcher) if launcher
  end

  def test_wrong_settings_are_refused
    {
      {delay: 4000} => /delay and jitter take milliseconds, at most 3600000/, {drip: 0} => /drip takes milliseconds/,
      {rate: 0} => /rate takes bytes a second, at least 1/, {rate: 1, drip: 1} => /rate and drip exclude each other/,
      {stall_at: 1, reset_at: 2} => /exclude each other/, {stall_at: -1} => /take a number of bytes/,
      {direction: "up"} => /direction must be replies, requests or both/
    }.each do |settings, message|
      assert_match message, assert_raises(Heddle::Lab::Error) { proxy("127.0.0.1:1", **settings) }.message
    end
    through = proxy
    assert_match(/the proxy refused "rate 0": rate takes/,
      assert_raises(Heddle::Lab::Error) { through.shape(rate: 0) }.message)
    assert_match(/unknown setting :speed; choose from delay/,
      assert_raises(ArgumentError) { through.shape(speed: 1) }.message)
    assert_equal "done", get(through, "/0")
    {"nowhere" => /HOST:PORT or unix:PATH/, "unix:" => /needs a path/, "unix:/#{"x" * 200}" => /107 bytes/,
     "no.such.name.invalid:80" => /no.such.name.invalid:80/}.each do |upstream, message|
      assert_match message, assert_raises(Heddle::Lab::Error) { proxy(upstream) }.message
    end
  end

  def test_lines_of_any_length_on_stdin
    output = IO.popen([@program, "--proxy", "127.0.0.1:1", "--control"], "r+") do |io|
      io.gets
      io.write("del", "ay 5\npass\r\n#{"x" * 2000}\n\nnonsense 1\n")
      answers = Array.new(5) { io.gets }
      io.close_write # control ends, the proxy does not
      Process.kill(:TERM, io.pid)
      answers
    end
    assert_equal ["ok\n", "ok\n", "error: a line can have at most 511 bytes\n", "ok\n"], output.first(4)
    assert_match(/\Aerror: unknown setting: use delay, .*; or pass, reset, stats alone\n\z/, output.last)
  end
end

# The same on a proxy built to stop with an error at the first invalid access or leak.
class SanitizedShapingProxyTest < ShapingProxyTest
  include SanitizedServer
end
