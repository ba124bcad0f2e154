# frozen_string_literal: true

require "test_helper"
require "objspace"
require "open3"
require "tempfile"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"

# What TLS does and plain sockets do not: records without data, reads that a write waits for, and an end without
# close_notify.
class NetHTTPTLSTest < Minitest::Test
  include LoopHelpers

  mode :thread

  REPLY = {pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}.freeze

  # openssl's own server, which sends its input; "k" makes it send a record without data.
  class Server
    attr_reader :port

    def initialize
      context = ScriptedHTTPServer.tls_context
      @files = [context.cert, context.key]
        .map { |part| Tempfile.new("pem").tap { |file| file.write(part.to_pem) && file.flush } }
      @input, @output, @process = Open3.popen2e("openssl", "s_server", "-accept", "127.0.0.1:0", "-cert",
        @files[0].path, "-key", @files[1].path)
      @seen = +""
      wait_for(/ACCEPT.*:(\d+)/)
      @port = @seen[/ACCEPT.*:(\d+)/, 1].to_i
    end

    def wait_for(pattern)
      @seen << @output.readpartial(10_000) until @seen.match?(pattern)
    end

    def say(text)
      @input.write(text)
      @input.flush
    end

    def close
      Process.kill(:KILL, @process.pid)
      @process.join
      [@input, @output].each(&:close)
      @files.each(&:close!)
    end
  end

  def setup
    Heddle::NetHTTP.enable
  end

  # https://github.com/ruby/net-http/issues/233: stock checks for the end of the file, and waits for data without
  # limit where only a handshake record has arrived: a session ticket, or new keys, as here.
  def test_a_record_without_data_before_a_request
    server = Server.new
    http = client(server.port)
    http.start
    2.times do |i|
      asked = Thread.new { http.get("/#{i}").body }
      server.wait_for(%r{GET /#{i}})
      server.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
      assert_equal "hello", asked.value
      server.say("k\n")
      wait_until { http.instance_variable_get(:@socket).io.to_io.wait_readable(0) }
    end
    asked = Thread.new { http.get("/last") }
    server.wait_for(%r{GET /last})
    asked.kill.join
  ensure
    server&.close
  end

  # net-protocol before 0.4 retries in a busy loop while a write waits for data to read.
  def test_a_write_that_waits_for_data_to_read
    server = ScriptedHTTPServer.new(tls: true)
    server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], ending: nil}] * 3])
    out = assert_child(<<~RUBY, gems: true)
      require "heddle/net_http"
      require "openssl"
      # As if new keys were agreed upon: until something comes, nothing is written.
      OpenSSL::SSL::SSLSocket.prepend(Module.new do
        def write_nonblock(...)
          return super unless $held
          $calls = $calls.to_i + 1
          $held = false if to_io.wait_readable(0)
          $held ? :wait_readable : super
        end
      end)
      http = Net::HTTP.new("127.0.0.1", #{server.port}, nil)
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
      http.write_timeout = 0.3
      http.max_retries = 0
      http.start
      puts http.get("/").body
      $held = true
      error = begin
        http.get("/")
      rescue => error
        error
      end
      puts error.class, $calls < 10
    RUBY
    assert_equal %w[hello Net::WriteTimeout true], out.split
  ensure
    server&.close
  end

  # A server that accepts the connection, and does not speak.
  def test_a_handshake_that_never_ends
    with_server(->(connection) { connection.read }) do |port|
      assert_within(2) { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { client(port).start } } }
      assert_within(2) do
        assert_raises(Heddle::DeadlineExceeded) { Heddle.run { Heddle.deadline(0.1) { client(port).start } } }
      end
      impatient = client(port)
      impatient.open_timeout = 0.1
      assert_within(2) { assert_raises(Net::OpenTimeout) { impatient.start } }
      assert_within(2) { assert_raises(Net::OpenTimeout) { Heddle.run { impatient.start } } }
    end
  end

  def test_certificates_are_verified
    server = ScriptedHTTPServer.new(tls: true)
    server.play([[REPLY]] * 2)
    http = client(server.port)
    http.verify_mode = nil
    assert_raises(OpenSSL::SSL::SSLError) { http.start }
    assert_raises(OpenSSL::SSL::SSLError) { Net::HTTP.start("127.0.0.1", server.port, nil, use_ssl: true) }
  ensure
    server&.close
  end

  def test_in_fibers
    server = ScriptedHTTPServer.new(tls: true)
    body = "x" * 300_000
    server.play([[{pieces: ["HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n", body], ending: nil}] * 2] * 10)
    bodies = Heddle.run {
      Array.new(10) {
        Heddle.spawn { client(server.port).start { |http| [http.get("/").body, http.post("/", body).body] } }
      }.map(&:value)
    }
    assert_equal [[body, body]] * 10, bodies
  ensure
    server&.close
  end

  # Where the length of the body is known, nothing is allocated beyond it: that would count as garbage later.
  def test_a_body_takes_no_more_memory_than_its_bytes
    body = "0123456789abcdef" * 350_000
    with_bodies(body) do |port|
      fetched = client(port).start { |http| http.get("/").body }
      assert_equal body, fetched
      assert_operator ObjectSpace.memsize_of(fetched), :<, body.bytesize + 10_000
    end
  end

  # SSLSocket's Ruby method is bypassed where that has no visible effect. What it has read ahead comes first all the
  # same.
  def test_pushed_back_bytes_come_first
    body = "0123456789abcdef" * 50_000
    pieces = lambda do |port|
      seen = []
      client(port).start do |http|
        http.request_get("/") do |response|
          response.read_body do |piece|
            http.instance_variable_get(:@socket).io.ungetc("+") if (seen << piece).size == 20
          end
        end
      end
      seen
    end
    with_bodies(body) do |port|
      assert_equal "+", pieces.call(port)[20]
    end
  end

  # In separate processes, since reopened classes stay so.
  {
    "in front of read_nonblock" =>
      "OpenSSL::SSL::SSLSocket.prepend(Module.new { def read_nonblock(...) = ($called += 1) && super })",
    "in front of sysread_nonblock" =>
      "OpenSSL::SSL::SSLSocket.prepend(Module.new { private def sysread_nonblock(...) = ($called += 1) && super })",
    "in the place of Buffering's" => "OpenSSL::Buffering.module_eval { alias_method :as_it_was, :read_nonblock; def " \
      "read_nonblock(...) = ($called += 1) && as_it_was(...) }",
    "in the place of SSLSocket's" => "OpenSSL::SSL::SSLSocket.class_eval { alias_method :as_it_was, " \
      ":sysread_nonblock; private def sysread_nonblock(...) = ($called += 1) && as_it_was(...) }"
  }.each do |where, patch|
    define_method(:"test_a_method_#{where.tr(" '", "_")}_is_called_for_each_record") do
      body = "0123456789abcdef" * 50_000
      with_bodies(body) do |port|
        out = assert_child(<<~RUBY)
          require "heddle/net_http"
          require "openssl"
          $called = 0
          #{patch}
          Net::HTTP.start("127.0.0.1", #{port}, nil, use_ssl: true, verify_mode: OpenSSL::SSL::VERIFY_NONE) do |http|
            print http.get("/").body.bytesize, " "
          end
          print $called > #{body.bytesize / 16_384}
        RUBY
        assert_equal "#{body.bytesize} true", out
      end
    end
  end

  private

  # In records that do not end at the end of a buffer.
  def with_bodies(body)
    server = ScriptedHTTPServer.new(tls: true)
    server.play([[{
      pieces: ["HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n", body[0, 9000], body[9000..]],
      ending: nil
    }]])
    yield server.port
  ensure
    server&.close
  end

  def client(port)
    Net::HTTP.new("127.0.0.1", port, nil).tap do |http|
      http.use_ssl = true
      http.verify_mode = OpenSSL::SSL::VERIFY_NONE
    end
  end
end
