# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tempfile"
require "support/keep_alive_helpers"

runs_on rubies: :ends

# Connections on which something was out of order are not kept: whoever got them next might get the answer to a request
# of somebody else.
class KeepAliveSoundnessTest < Minitest::Test
  include KeepAliveHelpers

  mode :thread

  UNSOUND = {
    "bytes left over" => "#{OK}x",
    "a second answer" => OK * 2,
    "an interim answer left over" => "#{OK}HTTP/1.1 100 Continue\r\n\r\n",
    "a body to the end of the connection" => ["HTTP/1.1 200 OK\r\n\r\nok", :close],
    "a body that is cut off" => ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", :close],
    "close" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
    "HTTP/1.0" => "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "two lengths" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a list of lengths" => "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "a length and chunks" =>
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "another coding" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a reset that has a length" => ["HTTP/1.1 205 Reset\r\nContent-Length: 2\r\n\r\n", 0.03, "ok"],
    "a reset that has chunks" => ["HTTP/1.1 205 Reset\r\nTransfer-Encoding: chunked\r\n\r\n", 0.03, "0\r\n\r\n"],
    "a reset without a length" => "HTTP/1.1 205 Reset\r\n\r\n",
    "a length on two lines" => "HTTP/1.1 200 OK\r\nContent-Length: 2,\r\n 2\r\n\r\nok",
    "a coding on two lines" =>
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked,\r\n chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "no content with a body" => "HTTP/1.1 204 No\r\n\r\nok",
    "nothing new with a body" => "HTTP/1.1 304 No\r\nContent-Length: 2\r\n\r\nok",
    "no content with a length" => "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n",
    "a challenge of NTLM" => "HTTP/1.1 401 No\r\nContent-Length: 2\r\nWWW-Authenticate: NTLM\r\n\r\nok",
    "a challenge of Negotiate" =>
      "HTTP/1.1 401 No\r\nContent-Length: 2\r\nWWW-Authenticate: Basic a=b\r\nWWW-Authenticate: Negotiate\r\n\r\nok",
    "the last request" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5, max=0\r\n\r\nok",
    "no time left" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=0\r\n\r\nok"
  }.freeze

  UNSOUND.each do |name, answer|
    define_method(:"test_not_after_#{name.tr(" /.", "_")}") do
      server = serve { answer }
      2.times { start(server) { |http| http.get("/") } }
      assert_equal [1, 2], server.connections
      assert_counted reused: 0
    end
  end

  SOUND = {
    "chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "no body" => "HTTP/1.1 204 No\r\n\r\n",
    "a reset with a length" => "HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
    "nothing new" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
    "HTTP/1.0 with keep-alive" => "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
    "an interim answer" => "HTTP/1.1 103 Early\r\n\r\n#{OK}",
    "an error" => "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nok"
  }.freeze

  SOUND.each do |name, answer|
    define_method(:"test_after_#{name.tr(" /.", "_")}") do
      server = serve { answer }
      3.times { start(server) { |http| http.get("/") } }
      assert_equal [1, 1, 1], server.connections
    end
  end

  def test_not_kept_after_requests_that_change_the_connection
    server = serve
    requests = [
      -> { Net::HTTP::Get.new("/", "Upgrade" => "websocket", "Connection" => "upgrade") },
      -> { Net::HTTP::Put.new("/", "Expect" => "100-continue").tap { |put| put.body = "a" } },
      -> { Net::HTTPGenericRequest.new("CONNECT", false, true, "/") },
      -> { Net::HTTP::Get.new("/", "Authorization" => "NTLM TlRMTVNTUAAB") },
      -> { Net::HTTP::Get.new("/", "Authorization" => "Negotiate YII") }
    ]
    requests.each { |make| start(server) { |http| http.request(make.call) } }
    assert_equal [1, 2, 3, 4, 5], server.connections
  end

  # doc/limits.md says so: a client cannot see what its server has read.
  def test_a_server_that_never_reads_the_body_of_a_request
    seen = Thread::Queue.new
    listener = TCPServer.new("127.0.0.1", 0)
    server = Thread.new do
      socket = listener.accept
      2.times do
        seen << (head = socket.gets("\r\n\r\n")) || break
        socket.write(OK) if head
      end
      socket.close
    end
    2.times do
      Net::HTTP.start("127.0.0.1", listener.local_address.ip_port) { |http| http.post("/", "unread") }
    end
    assert_equal ["POST / HTTP/1.1", "unreadPOST / HTTP/1.1"], Array.new(2) { seen.pop.lines.first.chomp }
  ensure
    listener.close
    server&.join
  end

  # Its server takes the next request for the rest of this one, or the rest of this one for the next.
  def test_not_kept_after_bodies_of_the_wrong_length
    put = ->(stream, **fields) { Net::HTTP::Put.new("/", fields).tap { |request| request.body_stream = stream } }
    requests = [
      -> { put.call(StringIO.new("abc"), "Content-Length": "4") },
      -> { put.call(StringIO.new("abc"), "Content-Length": "2") },
      -> { put.call(StringIO.new("abc").tap { |stream| stream.pos = 1 }, "Content-Length": "3") },
      -> { put.call(Sized.new("abc", 4), "Content-Length": "3") },
      -> { put.call(Sized.new("abc", nil), "Content-Length": "3") },
      -> { put.call(pipe_with("abc"), "Content-Length": "3") },
      -> { put.call(StringIO.new("abc"), "Content-Length": "3", "Transfer-Encoding": "chunked") },
      -> { Net::HTTP::Get.new("/", "Content-Length" => "2") },
      -> { Net::HTTP::Get.new("/", "Transfer-Encoding" => "chunked") }
    ]
    numbers = answering_heads do |server|
      requests.each { |make| start(server) { |http| http.request(make.call) } }
    end
    assert_equal [*1..requests.size], numbers.uniq # to this server the end of chunks is one of a head
    twice = Sized.new("abc", 3)
    assert_equal [1, 1], answering_heads { |server|
      2.times { start(server) { |http| http.request(put.call(twice, "Content-Length": "3")) } }
      assert_equal 0, Heddle::NetHTTP.stats[:idle], "the second time it is at its end"
    }
  end

  def test_kept_after_whole_request_bodies
    server = serve
    put = ->(stream, **fields) { Net::HTTP::Put.new("/", fields).tap { |request| request.body_stream = stream } }
    Tempfile.create("body") do |file|
      file.write("x" * 100_000)
      file.rewind
      requests = [
        put.call(StringIO.new("abc"), "Content-Length": "3"),
        put.call(StringIO.new("abc").tap { |stream| stream.pos = 1 }, "Content-Length": "2"),
        put.call(file, "Content-Length": "100000"),
        put.call(Sized.new("abc", 3), "Content-Length": "3"),
        put.call(StringIO.new("abc"), "Transfer-Encoding": "chunked"),
        Net::HTTP::Post.new("/").tap { |post| post.set_form({"a" => "b"}, "multipart/form-data") },
        Net::HTTP::Post.new("/").tap { |post| post.set_form_data("a" => "b") },
        Net::HTTP::Get.new("/", "Content-Length" => "0")
      ]
      requests.each { |request| start(server) { |http| http.request(request) } }
      assert_equal [1] * requests.size, server.connections
      assert_equal ["abc", "bc", "x" * 100_000, "abc", "abc"], server.requests.first(5).map(&:body)
    end
  end

  # Requests of the program's own kinds, which read no body where there is one, or one where there is none.
  def test_not_kept_if_the_caller_expects_another_body
    server = serve { |request| (request.verb == "HEAD") ? OK : [OK.byteslice(0...-2), 0.03, "ok"] }
    [["GET", false], ["HEAD", true]].each do |verb, reads|
      start(server) { |http| http.request(Net::HTTPGenericRequest.new(verb, false, reads, "/")) }
      assert_equal 0, Heddle::NetHTTP.stats[:idle], verb
    end
  end

  def test_not_kept_after_authentication_of_the_connection
    server = serve
    start(server) do |http|
      http.get("/", "Authorization" => "NTLM TlRMTVNTUAAD")
      http.get("/")
    end
    get(server)
    assert_equal [1, 1, 2], server.connections
  end

  def test_not_kept_after_a_block_that_was_left
    body = "x" * 100_000
    answer = "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\n\r\n"
    server = serve { [answer, body.byteslice(0, 50_000), 0.05, body.byteslice(50_000..)] }
    ways = {
      raise: ->(http) { http.request_get("/") { |response| response.read_body { raise "left" } } },
      throw: ->(http) { http.request_get("/") { |response| response.read_body { throw :left } } },
      break: ->(http) { http.request_get("/") { break } }
    }
    ways.each_value do |way|
      catch(:left) { start(server, &way) }
    rescue RuntimeError
      nil
    end
    assert_equal [1, 2, 3], server.connections
    assert_equal 0, Heddle::NetHTTP.stats[:idle]
  end

  def test_not_kept_after_an_interruption
    server = serve { |request| (request.path == "/") ? OK : [0.2, OK] }
    thread = Thread.new { start(server) { |http| http.get("/late") } }
    thread.report_on_exception = false
    wait_until { server.requests.size == 1 }
    thread.raise("interrupted")
    assert_raises(RuntimeError) { thread.value }
    Heddle.run do
      task = Heddle.spawn { start(server) { |http| http.get("/late") } }
      Heddle.spawn { sleep 0.001 until server.requests.size == 2 }.value
      task.cancel
    end
    get(server)
    assert_equal [1, 2, 3], server.connections
  end

  # As net-http-pipeline does.
  def test_not_kept_after_low_level_requests_of_the_program
    server = serve
    start(server) do |http|
      http.get("/")
      request = Net::HTTP::Get.new("/second")
      http.send(:begin_transport, request)
      request.exec(http.instance_variable_get(:@socket), "1.1", "/second")
    end
    get(server)
    assert_includes server.connections, 2
  end

  def test_not_kept_after_a_head_with_a_body
    server = serve
    2.times { start(server) { |http| http.head("/") } }
    assert_equal [1, 2], server.connections
  end

  # As the gem down does, which may leave the rest of a body unread.
  def test_not_kept_after_an_answer_that_the_program_calls_read
    ["", "Keep-Alive: timeout=9\r\n"].each do |field|
      each_way do |way|
        server = serve { "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n#{field}\r\n" } # the body is late
        start(server) do |http|
          http.request_get("/") { |response| response.instance_variable_set(:@read, true) }
        end
        assert_equal 0, Heddle::NetHTTP.stats[:idle], way
      end
    end
  end

  # --- what an earlier request of the session has left behind

  # Stock takes it for the answer to the second request. The true answer would go to the next session.
  def test_not_kept_after_an_answer_that_nobody_asked_for
    stray = OK.sub("ok", "no")
    {"at once" => [OK + stray], "later" => [OK, 0.02, stray]}.each do |name, first|
      each_way do |way|
        gate = Queue.new
        server = serve { |request| (request.path == "/1") ? first : gate.pop }
        start(server) do |http|
          http.keep_alive_timeout = 60 # on a busy machine the library would connect again
          assert_equal "ok", http.get("/1").body
          http.instance_variable_get(:@socket).io.wait_readable(5) if name == "later"
          assert_equal "no", http.get("/2").body
        end
        assert_equal 0, Heddle::NetHTTP.stats[:idle], "#{name}, #{way}"
        gate << OK
      end
    end
  end

  # A program that rescues the exception, and goes on in the same session.
  def test_not_kept_after_an_interrupted_request_and_another_one
    each_way do |way|
      gate = Queue.new
      server = serve { |request| (request.path == "/1") ? gate.pop : [1, OK] }
      start(server) do |http|
        interrupted(server) { http.post("/1", "a=b") }
        gate << OK
        http.get("/2") if way == "stock" # which gets the other's answer
      end
      assert_equal 0, Heddle::NetHTTP.stats[:idle], way
    end
  end

  # The library looks whether its last request has ended, also at the first request on a persistent connection.
  def test_an_interrupted_post_on_a_persistent_connection
    gate = Queue.new
    server = serve { |request| (request.verb == "POST") ? gate.pop : OK.sub("ok", "me") }
    get(server)
    start(server) do |http|
      interrupted(server) { http.post("/1", "a=b") }
      gate << OK
      assert_equal "me", http.get("/2").body
    end
    assert_equal [1, 1, 2], server.connections
  end

  def test_not_kept_after_an_answer_in_doubt_and_another_one
    doubtful = OK.sub("\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n")
    server = serve { |request| (request.path == "/1") ? doubtful : OK }
    2.times { start(server) { |http| %w[/1 /2].each { |path| http.get(path) } } }
    assert_equal [1, 1, 2, 2], server.connections
  end

  # The answer to the inner request is the body of the outer one, which may come from anywhere.
  def test_not_kept_after_a_request_in_the_middle_of_an_answer
    Heddle::NetHTTP.disable
    gate = Queue.new
    server = serve do |request|
      (request.path == "/1") ? "HTTP/1.1 200 OK\r\nContent-Length: #{OK.bytesize}\r\n\r\n#{OK}" : gate.pop
    end
    start(server) { |http| http.request_get("/1") { break http.get("/2") } }
    assert_equal 0, Heddle::NetHTTP.stats[:idle]
    gate << OK
  end

  # ---

  # It reads the body later, or never.
  def test_a_server_that_answers_before_the_request_is_sent
    body = "x" * 3_000_000
    [true, false].each do |reads|
      count = 0
      serve = lambda do |connection|
        count += 1
        while (head = connection.gets("\r\n\r\n"))
          connection.write(OK)
          break if head.start_with?("PUT") && !reads

          connection.read(head[/content-length: (\d+)/i, 1].to_i)
        end
      end
      with_server(serve) do |port|
        2.times do
          Net::HTTP.start("127.0.0.1", port) { |http| assert_equal "ok", http.put("/", body).body }
        rescue SystemCallError, IOError
          refute reads
        end
        assert_equal "ok", Net::HTTP.get(URI("http://127.0.0.1:#{port}/"))
      end
      assert_equal reads ? 1 : 3, count
    end
  end

  # A stream that knows how long it is, right or wrong, but not where it is.
  class Sized
    attr_reader :size

    def initialize(text, size)
      @stream = StringIO.new(text)
      @size = size
    end

    def read(...) = @stream.read(...)
  end

  private

  # Yields twice: with the acceleration, and without.
  def each_way
    yield "accelerated"
    Heddle::NetHTTP.disable
    yield "stock"
  ensure
    Heddle::NetHTTP.enable
  end

  # Runs the block in this thread until its request has come to the server.
  def interrupted(server)
    before = server.requests.size
    thread = Thread.current
    interrupter = Thread.new do
      sleep 0.001 until server.requests.size > before
      thread.raise(Interrupt)
    end
    assert_raises(Interrupt) { yield }
    interrupter.join
  end

  def pipe_with(text)
    reader, writer = IO.pipe
    writer.write(text)
    writer.close
    reader
  end

  # The numbers of the connections on which requests came to a server that answers each head at once.
  def answering_heads
    numbers = []
    count = 0
    answer = lambda do |connection|
      number = (count += 1)
      while connection.gets("\r\n\r\n").to_s.end_with?("\r\n\r\n")
        numbers << number
        connection.write(OK)
      end
    rescue SystemCallError
      nil
    end
    with_server(answer) { |port| yield Struct.new(:port).new(port) }
    numbers
  end
end
