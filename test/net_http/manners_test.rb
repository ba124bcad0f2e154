# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tempfile"
require "support/loop_helpers"
require "support/scripted_http_server"
require "heddle/net_http"
require "heddle"

# What programs rely on in Net::HTTP beyond bodies and heads, compared between stock and ours, in a thread and in a
# task.
class NetHTTPMannersTest < Minitest::Test
  include LoopHelpers

  mode :thread

  OK = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
  LARGE = "0123456789abcdef" * 30_000
  SIZED = "HTTP/1.1 200 OK\r\nContent-Length: #{LARGE.bytesize}\r\n\r\n"
  NOBODY = 0.15 # seconds that a reader waits for bytes that never come

  def setup
    Heddle::NetHTTP.enable
  end

  def teardown = Heddle::NetHTTP.enable

  # --- bodies

  def test_when_a_body_may_be_read
    same([OK, OK, OK]) do |http|
      kept = nil
      errors = [
        error_of { http.request_get("/") { |response| 2.times { response.read_body { nil } } } },
        error_of { http.request_get("/") { |response| (kept = response).read_body(+"") && response.read_body(+"") } },
        error_of { kept.read_body { nil } }
      ]
      errors << [kept.read_body, kept.body] <<
        error_of { http.request_get("/") { |response| http.finish || response.read_body } }
    end
  end

  def test_a_body_outside_of_its_block
    same([OK, OK]) do |http|
      kept = nil
      http.request_get("/") { |response| break kept = response }
      http.finish
      error_of { kept.body }
    end
  end

  def test_strings_that_the_block_changes
    same([[SIZED, LARGE].join] * 3) do |http|
      %i[clear freeze upcase!].map do |change|
        bytes = +""
        http.request_get("/") do |response|
          response.read_body do |segment|
            bytes << segment
            segment.public_send(change)
          end
        end
        [bytes.bytesize, bytes == LARGE]
      end
    end
  end

  def test_destinations_of_a_body
    frozen = "before"
    same([[SIZED, LARGE].join] * 8) do |http|
      Tempfile.create("body") do |file|
        taken = Class.new { def <<(piece) = (@bytes = (@bytes || +"") << piece) && self }.new
        [StringIO.new, StringIO.new(+"xyz"), file, [], +"\u00e4", (+"").force_encoding("UTF-16LE"), taken,
          frozen].map do |destination|
          outcome = error_of { http.request_get("/") { |response| response.read_body(destination) && nil } }
          http.finish if outcome
          http.start unless http.started?
          [outcome, bytes_of(destination), (destination.encoding if destination.is_a?(String))]
        end
      end
    end
  end

  def test_a_requested_encoding
    skip "net-http #{Net::HTTP::VERSION} asks for none" unless Net::HTTP.method_defined?(:response_body_encoding=)

    reply = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=iso-8859-1\r\nContent-Length: 7\r\n\r\nh\xe4ll\xf6!!".b
    same([reply] * 4) do |http|
      [false, true, Encoding::UTF_16BE, "Shift_JIS"].map do |wanted|
        http.response_body_encoding = wanted
        body = http.get("/").body
        [body.encoding, body.bytes]
      end
    end
  end

  # --- time

  def test_a_read_timeout_that_changes_during_the_body
    [->(response, &block) { response.read_body(&block) },
      ->(response, &block) { block.call && response.read_body }].each do |read|
      same([[SIZED, LARGE.byteslice(0, 300_000)].join], keep: true) do |http|
        http.read_timeout = 30
        http.max_retries = 0
        error_of { http.request_get("/") { |response| read.call(response) { http.read_timeout = NOBODY } } }
      end
    end
  end

  def test_ruby_s_own_timeout
    same([[SIZED, LARGE.byteslice(0, 300_000)].join], keep: true) do |http|
      http.max_retries = 0
      error_of { Timeout.timeout(NOBODY) { http.get("/") } }
    end
  end

  # For the server's "100 Continue", which does not come.
  def test_a_continue_timeout
    bodies = {string: ->(put) { put.body = "abc" }, stream: ->(put) { put.body_stream = StringIO.new("abc") },
              form: ->(put) { put.set_form([%w[a b]], "multipart/form-data", boundary: "b") }}
    bodies.each_value do |body|
      same([OK]) do |http|
        http.continue_timeout = 0.05
        put = Net::HTTP::Put.new("/", "Content-Type" => "x/y", "Expect" => "100-continue", "Content-Length" => "3")
        body.call(put)
        http.request(put).body
      end
    end
  end

  def test_an_answer_before_the_body
    same(["HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno"], ask: ->(head) { head }) do |http|
      http.continue_timeout = 5
      put = Net::HTTP::Put.new("/", "Content-Type" => "x/y", "Expect" => "100-continue", "Content-Length" => "3")
      put.body_stream = StringIO.new("abc")
      response = http.request(put)
      [response.code, response.body, put.body_stream.pos]
    end
  end

  # --- requests

  def test_forms
    same([OK] * 4) do |http|
      Tempfile.create("part") do |file|
        file.write("<part>")
        file.rewind
        first = Net::HTTP::Post.new("/").tap { |post| post.set_form_data("a" => ["b", "c d"], "\u00e4" => "&") }
        second = Net::HTTP::Post.new("/").tap { |post|
          post.set_form([["a", "b"], ["f", file, {filename: "x.txt"}]], "multipart/form-data", boundary: "limit")
        }
        third = Net::HTTP::Post.new("/")
          .tap { |post| post.set_form([["s", StringIO.new("part")]], "multipart/form-data", boundary: "limit") }
        third["Transfer-Encoding"] = "chunked"
        fourth = Net::HTTP::Post.new("/").tap { |post| post.set_form({"a" => "b"}) }
        [first, second, third, fourth].map { |post| http.request(post).body }
      end
    end
  end

  def test_verbs_and_fields
    same([OK] * 10) do |http|
      verbs = [Net::HTTP::Patch, Net::HTTP::Options, Net::HTTP::Propfind, Net::HTTP::Delete].map do |klass|
        request = klass.new("/path?a=b",
          "x-some-thing" => " spaced ", "CAPITALS" => "1", :symbol => "2", "Accept" => nil)
        request.body = "body" if request.request_body_permitted?
        request.basic_auth("user", "password")
        request.add_field("x-some-thing", "more")
        http.request(request).body
      end
      verbs << http.request(Net::HTTPGenericRequest.new("BREW", true, true, "/pot", "X-Number" => "5"), "beans").body <<
        http.send_request("GET", "/sent", nil, {"a" => "b"}).body
      verbs << http.put("/", "given", {}).body << http.delete("/").body
    end
  end

  def test_invalid_requests
    same([OK] * 8) do |http|
      [-> { http.get("/", "X" => "a\r\nb") }, -> { http.get("/", "" => "a") }, -> { http.get("/", "a" => 5) },
        -> { http.get("") }, -> { http.get("/", "a:b" => "c") }, -> { http.get("/ \r\nX: y") },
        -> { http.post("/", nil) && nil }, -> { Net::HTTP::Get.new("relative") && nil },
        -> { http.request(Object.new) }, -> { http.get(URI("/")) && nil },
        -> { http.get("/", [%w[a b]]) && nil }].map { |ask| error_of(&ask) }
    end
  end

  # --- connections

  def test_upgrades
    same(["HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nfirst words\nmore"],
      keep: true) do |http|
      # Older versions continue with the next.
      answer = error_of { http.get("/", "Upgrade" => "x", "Connection" => "upgrade").code }
      socket = http.instance_variable_get(:@socket)
      [answer, socket.closed? || [socket.readline, socket.read(4), socket.io.class]]
    end
  end

  def test_connection_headers_keep_or_close
    ["HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
      "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
      "HTTP/1.1 200 OK\r\nProxy-Connection: close\r\nContent-Length: 5\r\n\r\nhello"].each do |reply|
      same([reply] * 3) do |http|
        Array.new(3) { [http.get("/").body, http.instance_variable_get(:@socket).closed?] }
      end
    end
  end

  def test_a_connection_that_was_idle_for_too_long
    same([OK] * 3) do |http|
      http.keep_alive_timeout = 0
      [http.get("/").body, http.instance_variable_get(:@socket).io.fileno.class].tap { sleep 0.01 } <<
        http.get("/").body
    end
  end

  def test_requests_that_are_retried
    same([nil, OK, nil, nil, OK]) do |http|
      [http.get("/1").body, error_of { http.post("/2", "x") }, error_of { http.get("/3").body }]
    end
    same([nil, nil, OK]) do |http|
      http.max_retries = 0
      [error_of { http.get("/") }, error_of { http.get("/") }, http.get("/").body]
    end
  end

  def test_proxies
    same([OK] * 3) do |http|
      port = http.port
      through = Net::HTTP.new("192.0.2.1", 81, "127.0.0.1", port, "user", "pass")
      [through.start { |proxied| proxied.get("/a").body }, Net::HTTP.Proxy("127.0.0.1", port).get("192.0.2.1", "/b"),
        Net::HTTP.new("127.0.0.1", port, "192.0.2.9", 1, nil, nil, "127.0.0.1,192.0.2.9")
          .start { |direct| direct.get("/c").body }]
    end
  end

  def test_a_tunnel
    context = ScriptedHTTPServer.tls_context
    serve = lambda do |connection, received|
      received << connection.gets("\r\n\r\n")
      connection.write("HTTP/1.1 200 Connection established\r\n\r\n")
      sealed = OpenSSL::SSL::SSLSocket.new(connection, context).tap(&:accept)
      2.times do
        received << sealed.gets("\r\n\r\n")
        sealed.write(OK)
      end
    end
    each_way do
      received = []
      with_server(->(connection) { serve.call(connection, received) }) do |port|
        http = Net::HTTP.new("192.0.2.1", 443, "127.0.0.1", port, "user", "pass")
        http.use_ssl = true
        http.verify_mode = OpenSSL::SSL::VERIFY_NONE
        [http.start { Array.new(2) { http.get("/").body } + [http.peer_cert.to_der] }, received]
      end
    end
  end

  def test_debug_output_is_that_of_stock
    same([OK, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], fast: false) do |http|
      log = StringIO.new
      http.finish
      http.set_debug_output(log)
      http.start
      2.times { http.get("/") }
      http.finish
      log.string.gsub(http.port.to_s, "PORT").gsub(/Conn.*/, "") # the split into reads and waits is random
    end
  end

  def test_methods_of_a_response
    reply = "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-4/10\r\nContent-Length: 5\r\nSet-Cookie: a\r\n" \
      "Set-Cookie: b\r\nContent-Type: text/html; charset=x\r\nConnection: close\r\n\r\nhello"
    same([reply]) do |http|
      response = http.get("/")
      [response.to_hash, response.get_fields("set-cookie"), response.content_range, response.range_length,
        response.content_length, response.type_params, response.sub_type,
        response.each_capitalized.to_a, response.canonical_each.to_a, response.connection_close?, response.chunked?,
        response.inspect, response.msg, response.uri, response.key?("ETag"),
        response.to_hash.keys.map(&:frozen?), response.to_hash.values.flatten.map(&:frozen?),
        response.instance_variables, Marshal.load(Marshal.dump(response)).body]
    end
  end

  private

  # The block's values with stock, with ours in a thread, and with ours in a task.
  def each_way(fast: true, &block)
    Heddle::NetHTTP.disable
    stock = block.call
    Heddle::NetHTTP.enable
    before = Heddle::NetHTTP.stats[:fast]
    assert_equal stock, block.call
    assert_equal stock, Heddle.run(&block), "in a task"
    assert_operator Heddle::NetHTTP.stats[:fast], :>, before if fast
  end

  # A server that sends these replies in turn, one a request (nil: it closes instead), to a client whose requests it
  # keeps.
  def same(replies, keep: false, ask: nil, fast: true)
    each_way(fast: fast) do
      left, received = replies.dup, []
      with_server(->(connection) { serve(connection, left, received, keep, ask) }) do |port|
        http = Net::HTTP.new("127.0.0.1", port, nil)
        http.read_timeout = 10
        http.start
        outcome = yield http
        http.finish if http.started?
        [outcome, received.map { |text| text.gsub(port.to_s, "PORT") }]
      end
    end
  end

  def serve(connection, left, received, keep, ask)
    while (head = connection.gets("\r\n\r\n"))
      received << (ask ? head : head + body_behind(connection, head))
      reply = left.shift or return
      connection.write(reply)
      connection.read if keep
      return if reply.match?(/^(Proxy-)?Connection: close|\AHTTP\/1.0(?!.*keep-alive)/m)
    end
  rescue SystemCallError
    nil
  end

  def body_behind(connection, head)
    return connection.read(head[/^content-length: (\d+)/i, 1].to_i) unless head.match?(/^transfer-encoding: chunked/i)

    body = +""
    body << connection.gets until body.end_with?("0\r\n\r\n")
    body
  end

  def bytes_of(destination)
    case destination
    when StringIO then destination.string
    when File then destination.flush && File.binread(destination.path)
    when Array then destination.join
    when String then destination.b
    else destination.instance_variable_get(:@bytes)
    end
  end

  # nil where there was none.
  def error_of
    value = yield
    value.is_a?(String) ? value : nil
  rescue => error
    [error.class, error.message.gsub(/:?0x\h+|fd \d+|:\d+|\d{4,}/, "N"), (error.io.class if error.respond_to?(:io))]
  end
end
