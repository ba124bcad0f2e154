# frozen_string_literal: true

require "test_helper"
require "open-uri"
require "support/hosts"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"
require "heddle"

# Connects, waits and ends, in threads and in fibers.
class NetHTTPTransportTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  def setup
    Heddle::NetHTTP.enable
    @servers = [@server = ScriptedHTTPServer.new]
    @server.play([[REPLY] * 5] * 100)
    @before = Heddle::NetHTTP.stats[:fast]
  end

  def teardown
    Heddle::NetHTTP.enable
    @servers.each(&:close)
  end

  def test_in_fibers
    bodies = Heddle.run do
      Array.new(30) { Heddle.spawn { Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/")) } }.map(&:value)
    end
    assert_equal ["hello"] * 30, bodies
    assert_operator Heddle::NetHTTP.stats[:fast] - @before, :>, 60
  end

  # Another gem's scheduler, through its public hooks.
  def test_under_async
    reason = Hosts.missing(:async)
    skip reason if reason

    @servers << tls = ScriptedHTTPServer.new(tls: true)
    zipped = Zlib.gzip("hello" * 1000)
    tls.play([[{
      pieces: ["HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: #{zipped.bytesize}\r\n\r\n", zipped],
      ending: nil
    }]] * 10)
    bodies = Hosts.run(:async) do |spawn|
      plain = Array.new(10) { |i|
        spawn.call { Net::HTTP.get(URI("http://#{i.even? ? "127.0.0.1" : "localhost"}:#{@server.port}/")) }
      }
      sealed = Array.new(10) do
        spawn.call do
          Net::HTTP.start("localhost", tls.port, nil, nil, nil, nil,
            use_ssl: true, verify_mode: OpenSSL::SSL::VERIFY_NONE) { |http| http.post("/", "x" * 100_000).body }
        end
      end
      (plain + sealed).map(&:value)
    end
    assert_equal ["hello"] * 10 + ["hello" * 1000] * 10, bodies
    assert_operator Heddle::NetHTTP.stats[:fast] - @before, :>, 60
  end

  def test_in_threads
    bodies = Array.new(10) { Thread.new { Net::HTTP.get(URI("http://127.0.0.1:#{@server.port}/")) } }.map(&:value)
    assert_equal ["hello"] * 10, bodies
  end

  def test_open_uri
    assert_equal "hello", URI.open("http://127.0.0.1:#{@server.port}/", &:read)
    assert_operator Heddle::NetHTTP.stats[:fast], :>, @before
  end

  # To an address and to a name.
  def test_refused_as_in_stock
    closed = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    %w[127.0.0.1 localhost].each do |host|
      errors = [-> { Heddle::NetHTTP.enable }, -> { Heddle::NetHTTP.disable }].map do |switch|
        switch.call
        error = assert_raises(SystemCallError) { Net::HTTP.new(host, closed, nil).start }
        [error.class, error.message]
      end
      assert_equal errors.last, errors.first
    end
  end

  # A full backlog does not answer.
  def test_open_timeout_as_in_stock
    with_full_backlog do |port|
      errors = [-> { Heddle::NetHTTP.enable }, -> { Heddle::NetHTTP.disable }].map do |switch|
        switch.call
        http = Net::HTTP.new("127.0.0.1", port, nil)
        http.open_timeout = 0.2
        error = assert_within(2, at_least: 0.19) { assert_raises(Net::OpenTimeout) { http.start } }
        error.message[/\AFailed[^(]*|\A.*/]
      end
      assert_equal errors.last, errors.first
    end
  end

  def test_options_as_in_stock
    options = {
      :read_timeout => 7, :open_timeout => 3, :keep_alive_timeout => 9, "write_timeout" => 1, :no_such => 1,
      :max_retries => 0
    }
    seen = [-> { Heddle::NetHTTP.enable }, -> { Heddle::NetHTTP.disable }].map do |switch|
      switch.call
      Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, options) do |http|
        %i[read_timeout open_timeout keep_alive_timeout write_timeout max_retries proxy? proxy_address].map do |name|
          http.public_send(name)
        end
      end
    end
    assert_equal [7, 3, 9, 60, 0, false, nil], seen.first
    assert_equal seen.last, seen.first
  end

  # As Rails' HashWithIndifferentAccess does.
  class AnyKeys < Hash
    def [](name) = super(name.to_s)

    def key?(name) = super(name.to_s)
  end

  class ConvertsToAnyKeys
    def initialize(options) = @options = options

    def to_hash = @options
  end

  def test_options_in_a_hash_with_keys_of_its_own
    options = AnyKeys.new.merge!("read_timeout" => 7, "max_retries" => 0)
    [options, ConvertsToAnyKeys.new(options), ConvertsToAnyKeys.new({read_timeout: 7, max_retries: 0})].each do |given|
      Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, given) do |http|
        assert_equal [7, 0], [http.read_timeout, http.max_retries]
      end
    end
  end

  def test_an_option_whose_setter_is_defined_late
    klass = Class.new(Net::HTTP)
    klass.start("127.0.0.1", @server.port, nil, nil, nil, nil, read_timeout: 1) { nil }
    klass.attr_accessor :late
    klass.start("127.0.0.1", @server.port, nil, nil, nil, nil, late: 5) { |http| assert_equal 5, http.late }
  end

  def test_connecting_to_an_address_sets_no_timer
    called = []
    trace = TracePoint.new(:call, :c_call) { |point|
      called << point.method_id if %i[timeout open tcp].include?(point.method_id)
    }
    trace.enable(target_thread: Thread.current) { Net::HTTP.start("127.0.0.1", @server.port, nil) { nil } }
    assert_empty called
  end

  def test_a_stub_of_the_connecting_method_is_called
    opener = if Net::HTTP::VERSION == "0.2.0"
      "Socket.singleton_class.prepend(Module.new { def tcp(*, **) = ($called = true) && super })"
    else
      "def TCPSocket.open(*, **) = ($called = true) && super"
    end
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      #{opener}
      puts Net::HTTP.start("127.0.0.1", #{@server.port}, nil) { |http| http.get("/").body }, $called.inspect
    RUBY
    assert_equal %w[hello true], out.split
  end

  def test_a_read_timeout
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"], ending: nil}, REPLY]])
    error = assert_within(2, at_least: 0.19) do
      assert_raises(Net::ReadTimeout) do
        Net::HTTP.start("127.0.0.1", @server.port, nil, nil, nil, nil, read_timeout: 0.2, max_retries: 0) do |http|
          http.get("/")
        end
      end
    end
    assert_match(/\ANet::ReadTimeout with #<(TCP)?Socket/, error.message)
  end

  def test_a_deadline
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nX: "], ending: nil}, REPLY]] * 5)
    url = URI("http://127.0.0.1:#{@server.port}/")
    assert_within(2) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { Net::HTTP.get(url) } } }
    assert_within(2) do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.run { Heddle.deadline(0.2) { Net::HTTP.get(url) } } }
    end
  end

  # https://github.com/ruby/net-http/issues/315
  def test_a_line_without_end
    endless = lambda do |connection|
      connection.gets("\r\n\r\n")
      loop { connection.write("x" * 65_536) }
    rescue SystemCallError
      nil
    end
    with_server(endless) do |port|
      before = rss_kib
      error = assert_raises(Net::HTTPBadResponse) { Net::HTTP.get(URI("http://127.0.0.1:#{port}/")) }
      assert_equal "response line too long", error.message
      assert_kind_of Net::ReadLimitExceeded, error.cause if Net.const_defined?(:ReadLimitExceeded)
      assert_operator rss_kib - before, :<, 30_000
    end
  end

  # Pieces that end in the middle of a line leave a rest each time.
  def test_lines_without_end
    endless = lambda do |connection|
      connection.gets("\r\n\r\n")
      connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
      trailers = "x: #{"y" * 990}\r\n" * 100
      600.times { connection.write(trailers) }
    rescue SystemCallError
      nil
    end
    with_server(endless) do |port|
      before = rss_kib
      assert_raises(EOFError) { Net::HTTP.get(URI("http://127.0.0.1:#{port}/")) }
      assert_operator rss_kib - before, :<, 30_000
    end
  end

  # The rest of a large body is waited for without the GVL, and a signal ends each wait.
  def test_signals_do_not_extend_the_read_timeout
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhe"], ending: nil}, REPLY]])
    out = assert_child(<<~RUBY, timeout: 20)
      require "rbconfig"
      require "heddle/net_http"
      trap(:USR1) { nil }
      signals = Process.spawn(RbConfig.ruby, "--disable=gems", "-e",
        "200.times { sleep 0.05; Process.kill(:USR1, \#{Process.pid}) }", err: File::NULL)
      began = Heddle::Clock.now
      begin
        Net::HTTP.start("127.0.0.1", #{@server.port}, nil, nil, nil, nil, read_timeout: 0.5, max_retries: 0) do |http|
          http.get("/")
        end
      rescue Net::ReadTimeout
        puts Heddle::Clock.now - began
      end
      Process.kill(:KILL, signals)
    RUBY
    assert_operator Float(out), :<, stretched(5)
  end

  # https://github.com/ruby/net-http/issues/233: a session ticket of TLS 1.3 is neither the end of the file nor data.
  def test_a_tls_connection_is_reused
    @servers << tls = ScriptedHTTPServer.new(tls: true)
    tls.play([[REPLY] * 5])
    http = Net::HTTP.new("127.0.0.1", tls.port, nil)
    http.use_ssl = true
    http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    assert_within(5) { http.start { 4.times { assert_equal "hello", http.get("/").body } } }
    assert_equal 4, tls.received.size
  end

  def test_closing_in_another_thread_ends_a_read
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhe"], ending: nil}, REPLY]])
    http = Net::HTTP.new("127.0.0.1", @server.port, nil)
    http.max_retries = 0
    reader = Thread.new { http.start { http.get("/") } }
    reader.report_on_exception = false
    wait_until { reader.stop? && http.instance_variable_get(:@socket) && @server.received.any? }
    http.instance_variable_get(:@socket).close
    assert_within(3, remeasure: 0) { assert_raises(IOError) { reader.value } }
  end

  def test_a_large_upload_and_a_large_body
    bytes = Random.new(1).bytes(3_000_000)
    @server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", bytes], ending: nil}] * 2])
    Net::HTTP.start("127.0.0.1", @server.port, nil) do |http|
      assert_equal bytes, http.post("/", bytes, "Content-Type" => "x/y").body
      request = Net::HTTP::Put.new("/", "Content-Type" => "x/y", "Content-Length" => bytes.bytesize.to_s)
      request.body_stream = StringIO.new(bytes)
      assert_equal bytes, http.request(request).body
    end
    assert_equal [bytes, bytes], @server.received.map(&:last)
  end

  private

  # A listening socket whose queue is full: no connect is answered.
  def with_full_backlog
    server = Socket.new(:INET, :STREAM)
    server.bind(Addrinfo.tcp("127.0.0.1", 0))
    server.listen(0)
    port = server.local_address.ip_port
    fillers = Array.new(4) {
      Socket.new(:INET, :STREAM).tap do |socket|
        socket.connect_nonblock(Addrinfo.tcp("127.0.0.1", port), exception: false)
      end
    }
    sleep 0.05 until fillers.first.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.getbyte(0) == 1
    yield port
  ensure
    [server, *fillers].compact.each(&:close)
  end
end
