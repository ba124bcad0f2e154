# frozen_string_literal: true

require "test_helper"
require "stringio"
require "tempfile"
require "support/keeping_server"
require "support/loop_helpers"
require "heddle/net_http"
require "heddle"

# Which sessions share a connection, what becomes of a request that meets a closed one, and that callers see nothing of
# it.
class KeepAliveTest < Minitest::Test
  include LoopHelpers

  mode :thread

  OK = KeepingServer::OK

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive
    @before = Heddle::NetHTTP.stats
    @servers = []
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    Heddle::NetHTTP.enable
    @servers.each(&:close)
  end

  # --- sessions that share

  def test_every_way_to_end_a_session
    server = serve
    start(server) { |http| http.get("/block") }
    http = start(server)
    http.get("/finish")
    http.finish
    Net::HTTP.get(uri(server))
    Net::HTTP.post(uri(server), "a=b")
    Net::HTTP.new("127.0.0.1", server.port).get("/without-start")
    Net::HTTP.start("127.0.0.1", server.port, read_timeout: 5) { |other| other.get("/option") }
    assert_equal [1] * 6, server.connections
    assert_counted opened: 1, reused: 5, stale: 0, evicted: 0
  end

  # The thread that closes connections later wakes no task.
  def test_a_deadlock_beside_kept_connections
    server = serve
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive(idle: 60)
      Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/"))
      p Heddle::NetHTTP.stats[:idle]
      begin
        Heddle.run { Thread::Queue.new.pop }
      rescue Heddle::Deadlock
        puts "deadlock"
      end
    RUBY
    assert_equal "1\ndeadlock\n", out
  end

  def test_without_the_acceleration
    Heddle::NetHTTP.disable
    server = serve
    5.times { start(server) { |http| assert_equal "ok", http.get("/").body } }
    assert_equal [1] * 5, server.connections
    assert_equal @before[:fast], Heddle::NetHTTP.stats[:fast]
  end

  def test_off_by_default_and_off_again
    server = serve
    Heddle::NetHTTP.keep_alive(false)
    2.times { start(server) { |http| http.get("/") } }
    assert_equal [1, 2], server.connections
  end

  def test_wrong_limits
    [{idle: 0}, {idle: -1}, {idle: "1"}, {idle: Float::INFINITY}, {per_host: 0}, {total: 1.5}].each do |limits|
      error = assert_raises(ArgumentError) { Heddle::NetHTTP.keep_alive(**limits) }
      assert_match(/#{limits.keys.first} must be/, error.message)
    end
  end

  def test_threads_and_tasks_share
    server = serve
    get(server)
    Heddle.run { Heddle.spawn { get(server) }.value }
    Thread.new { get(server) }.join
    Thread.new { Heddle.run { get(server) } }.join
    get(server)
    assert_equal [1] * 5, server.connections
  end

  # --- what callers see

  def test_a_session_looks_like_a_new_one
    server = serve
    get(server)
    http = Net::HTTP.new("127.0.0.1", server.port)
    refute_predicate http, :started?
    http.start
    assert_predicate http, :started?
    assert_raises(IOError) { http.start }
    # Older versions make a Socket, which has no peeraddr.
    assert_equal "127.0.0.1", http.ipaddr if http.instance_variable_get(:@socket).io.is_a?(TCPSocket)
    assert_nil http.peer_cert
    assert_equal "ok", http.get("/").body
    assert_equal 1, http.max_retries
    http.finish
    refute_predicate http, :started?
    assert_raises(IOError) { http.finish }
    assert_equal [1, 1], server.connections
  end

  def test_timeouts_are_the_new_session_s_own
    server = serve { |request| (request.path == "/late") ? [1, OK] : OK }
    start(server) { |http| http.get("/") }
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.read_timeout = 0.05
    http.max_retries = 0
    assert_raises(Net::ReadTimeout) { http.start { http.get("/late") } }
    assert_equal [1, 1], server.connections
    get(server)
    assert_equal 2, server.connections.last, "what timed out is not kept"
  end

  def test_the_close_that_the_library_adds_is_keep_alive_on_the_wire
    server = serve
    request = Net::HTTP::Get.new("/")
    2.times do
      Net::HTTP.new("127.0.0.1", server.port).request(request)
      assert_equal "close", request["connection"], "as without keep-alive"
    end
    assert_equal %w[keep-alive keep-alive], server.requests.map { |one| one["connection"] }
    assert_equal [1, 1], server.connections
  end

  # The library compares a version with "1.0" if it may keep the connection.
  def test_an_answer_without_a_version
    server = serve { "HTTP 200 OK\r\nContent-Length: 2\r\n\r\nok" }
    2.times { assert_equal "ok", Net::HTTP.new("127.0.0.1", server.port).get("/").body }
    assert_equal [1, 2], server.connections
  end

  def test_a_close_that_the_caller_wants
    server = serve
    2.times { Net::HTTP.new("127.0.0.1", server.port).get("/", "Connection" => "close") }
    assert_equal %w[close close], server.requests.map { |one| one["connection"] }
    assert_equal [1, 2], server.connections
    request = Net::HTTP::Get.new("/")
    Net::HTTP.new("127.0.0.1", server.port).request(request)
    request["connection"] = "close" # now by the caller
    Net::HTTP.new("127.0.0.1", server.port).request(request)
    assert_equal "close", server.requests.last["connection"]
  end

  def test_a_block_sees_its_max_retries
    server = serve
    get(server)
    start(server) do |http|
      http.request_get("/") { assert_equal 1, http.max_retries }
      assert_equal 1, http.max_retries
    end
    assert_equal [1, 1], server.connections
  end

  def test_debug_output_names_a_kept_connection
    server = serve
    get(server)
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.set_debug_output(output = StringIO.new)
    http.start { http.get("/") }
    assert_includes output.string, "using a kept connection to 127.0.0.1:#{server.port}\n"
    assert_includes output.string, "GET / HTTP/1.1"
    get(server)
    assert_equal [1] * 3, server.connections
  end

  # A dup has the same BufferedIO, and a program may have saved it.
  def test_nobody_else_can_use_a_kept_connection
    server = serve
    http = start(server)
    http.get("/")
    other = http.dup
    socket = http.instance_variable_get(:@socket)
    http.finish
    assert_predicate socket, :closed?
    assert_raises(IOError) { socket.readline }
    assert_nil socket.close
    assert_equal "ok", other.get("/").body
    get(server)
    assert_equal [1, 2, 1], server.connections
    other.finish
  end

  # --- sessions that do not share

  def test_what_makes_connections_different
    server = serve
    alike = -> { Net::HTTP.new("127.0.0.1", server.port, nil) }
    different = {
      "another name" => -> { Net::HTTP.new("localhost", server.port, nil).tap { |http| http.ipaddr = "127.0.0.1" } },
      "an address" => -> { alike.call.tap { |http| http.ipaddr = "127.0.0.1" } },
      "a local address" => -> { alike.call.tap { |http| http.local_host = "127.0.0.1" } },
      "a local port" => -> { alike.call.tap { |http| http.local_host, http.local_port = "127.0.0.1", free_port } },
      "a proxy" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port) },
      "credentials of a proxy" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port, "me", "pw") },
      "others" => -> { Net::HTTP.new("127.0.0.1", server.port, "127.0.0.1", server.port, "me", "pw2") },
      "a subclass" => -> { subclass.new("127.0.0.1", server.port, nil) }
    }
    numbers = [alike, *different.values].map do |make|
      2.times { make.call.start { |http| http.get("/") } }
      server.connections.last(2)
    end
    numbers.each { |pair| assert_equal 1, pair.uniq.size, "each kind shares with itself" }
    assert_equal numbers.size, numbers.uniq.size, different.keys.inspect
  end

  def test_a_name_that_changes_in_place
    server = serve
    name = +"127.0.0.1"
    Net::HTTP.start(name, server.port) { |http| http.get("/") }
    name.replace("127.0.0.2")
    get(server)
    assert_equal [1, 1], server.connections
  end

  def test_an_object_that_is_exempt
    server = serve
    2.times { Net::HTTP.start("127.0.0.1", server.port, keep_alive: false) { |http| http.get("/") } }
    http = Net::HTTP.new("127.0.0.1", server.port)
    assert http.keep_alive
    http.keep_alive = false
    refute http.keep_alive
    http.start { http.get("/") }
    assert_equal [1, 2, 3], server.connections
    assert_counted opened: 0, reused: 0
  end

  # As a program does that finds out something about a connection.
  def test_an_object_that_becomes_exempt_in_its_session
    server = serve
    start(server) { |http| http.get("/") && http.keep_alive = false }
    get(server)
    assert_equal [1, 2], server.connections
  end

  def test_a_block_chooses_the_key
    server = serve
    tenant = :one
    Heddle::NetHTTP.keep_alive { |http| tenant if http.port == server.port }
    get(server)
    get(server)
    tenant = :two
    get(server)
    tenant = nil
    get(server)
    tenant = :one
    get(server)
    assert_equal [1, 1, 2, 3, 1], server.connections
  end

  def test_a_negative_keep_alive_timeout
    server = serve
    get(server)
    Net::HTTP.start("127.0.0.1", server.port, keep_alive_timeout: 0) { |http| http.get("/") }
    assert_equal [1, 2], server.connections
  end

  # What such a program sends on a new connection, it would send again.
  def test_programs_that_change_how_connections_are_made
    server = serve
    get(server)
    klass = Class.new(Net::HTTP) { def on_connect = nil }
    klass.new("127.0.0.1", server.port).start { |http| http.get("/") }
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.define_singleton_method(:connect) { super() }
    http.start { http.get("/") }
    assert_equal [1, 2, 3], server.connections
    get(server)
    assert_equal 1, server.connections.last
  end

  # --- connections on which something was out of order

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

  def test_not_after_requests_that_may_turn_the_connection_into_something_else
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

  # Its server takes the next request for the rest of this one, or the rest of this one for the next.
  def test_not_after_requests_that_are_shorter_or_longer_than_they_say
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

  def test_after_requests_whose_bodies_are_whole
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
  def test_not_after_an_answer_that_is_read_otherwise_than_sent
    server = serve { |request| (request.verb == "HEAD") ? OK : [OK.byteslice(0...-2), 0.03, "ok"] }
    [["GET", false], ["HEAD", true]].each do |verb, reads|
      start(server) { |http| http.request(Net::HTTPGenericRequest.new(verb, false, reads, "/")) }
      assert_equal 0, Heddle::NetHTTP.stats[:idle], verb
    end
  end

  def test_authentication_of_the_connection_counts_until_its_end
    server = serve
    start(server) do |http|
      http.get("/", "Authorization" => "NTLM TlRMTVNTUAAD")
      http.get("/")
    end
    get(server)
    assert_equal [1, 1, 2], server.connections
  end

  def test_not_after_a_request_that_was_left
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

  def test_not_after_an_interruption
    server = serve { |request| (request.path == "/") ? OK : [0.2, OK] }
    thread = Thread.new { start(server) { |http| http.get("/late") } }
    thread.report_on_exception = false
    wait_until { server.requests.size == 1 }
    thread.raise("struck")
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
  def test_not_after_requests_that_a_program_began_itself
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

  def test_not_after_the_body_of_a_head
    server = serve
    2.times { start(server) { |http| http.head("/") } }
    assert_equal [1, 2], server.connections
  end

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

  # --- servers that close

  def test_a_server_that_closes_after_each_answer
    server = serve { [OK, :close] }
    5.times { assert_equal "ok", start(server) { |http| http.get("/").body } }
    assert_equal [1, 2, 3, 4, 5], server.connections
  end

  def test_a_server_that_was_restarted
    server = serve
    get(server)
    server.drop
    assert_equal "ok", post(server)
    assert_equal [1, 2], server.connections
    assert_counted reused: 0, stale: 1
  end

  # The server takes the request and closes: whether it did something, nobody knows.
  def test_a_get_is_sent_again_if_the_server_closes_at_that_moment
    [0, 1, 2].each do |retries|
      server = serve { |request| (request.number == 1) ? OK : nil }
      get(server)
      assert_equal "ok", start(server) { |http|
        http.max_retries = retries
        http.get("/again").body.tap { assert_equal retries, http.max_retries }
      }
      assert_equal [1, 1, 2], server.connections
    end
  end

  def test_a_reset_at_that_moment
    server = serve { |request| (request.number == 1) ? OK : [:reset] }
    get(server)
    assert_equal "ok", start(server) { |http| (http.max_retries = 0) && http.get("/again").body }
    assert_equal [1, 1, 2], server.connections
  end

  # They belong to an earlier session.
  def test_bytes_that_come_after_a_session_has_begun
    %w[GET POST].each do |verb|
      server = serve { |request| (request.path == "/") ? [OK, 0.05, OK] : OK.sub("ok", "me") }
      get(server)
      start(server) do |http|
        http.instance_variable_get(:@socket).io.wait_readable(1)
        assert_equal "me", http.send_request(verb, "/mine").body
      end
      assert_equal [1, 2], server.connections
      assert_equal ["/", "/mine"], server.requests.map(&:path)
    end
    assert_counted opened: 4, reused: 2, stale: 2
  end

  # Then the library connects again, and has the retries of a new session: not one more.
  def test_retries_if_the_server_closes_before_the_first_request
    [0, 1, 2].each do |retries|
      server = serve { |request| OK if request.path == "/" }
      get(server)
      start(server) do |http|
        http.max_retries = retries
        server.drop
        assert_raises(EOFError) { http.get("/never") }
        assert_equal retries, http.max_retries
      end
      assert_equal [1, *2..retries + 2], server.connections
    end
  end

  # Stock Net::HTTP repeats a request after any Timeout::Error.
  def test_not_again_after_a_deadline
    limits = [->(&block) { Heddle.deadline(0.05, &block) }, ->(&block) { Timeout.timeout(0.05, &block) }]
    server = serve { |request| (request.path == "/") ? OK : [0.2, OK] }
    [false, true].product(limits) do |kept, limit|
      Heddle::NetHTTP.keep_alive(kept)
      [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |place|
        get(server)
        count = server.requests.size
        assert_raises(Timeout::Error) { place.call { limit.call { start(server) { |http| http.get("/late") } } } }
        get(server)
        assert_equal count + 2, server.requests.size
      end
    end
  end

  # All retries of a new connection are left.
  def test_retries_after_a_kept_connection
    seen = 0
    server = serve { |request| ((seen += 1) == 1 || request.connection == 3) ? OK : nil }
    get(server)
    assert_equal "ok", start(server) { |http| http.get("/again").body }
    assert_equal [1, 1, 2, 3], server.connections
    seen = 0
    failing = serve { ((seen += 1) == 1) ? OK : nil }
    get(failing)
    assert_raises(EOFError) { start(failing) { |http| http.get("/again") } }
    assert_equal [1, 1, 2, 3], failing.connections
  end

  def test_a_post_is_sent_once
    server = serve { |request| (request.number == 1) ? OK : nil }
    get(server)
    assert_raises(EOFError) { post(server) }
    assert_equal [%w[GET POST], [1, 1]], [server.requests.map(&:verb), server.connections]
  end

  def test_not_again_once_the_answer_has_begun
    server = serve { |request| (request.number == 1) ? OK : ["HTTP/1.1 200 OK\r\n", 0.02, :reset] }
    get(server)
    assert_raises(SystemCallError, IOError) do
      start(server) { |http| (http.max_retries = 0) && http.get("/again") }
    end
    assert_equal [1, 1], server.connections
    start = serve { |request| (request.number == 1) ? OK : ["HTT", :close] }
    get(start)
    assert_raises(EOFError) { start(start) { |http| (http.max_retries = 0) && http.get("/again") } }
    assert_equal [1, 1], start.connections
  end

  def test_a_timeout_is_no_reason_to_send_again
    server = serve { |request| (request.number == 1) ? OK : [0.5, OK] }
    get(server)
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.read_timeout = 0.03
    http.max_retries = 0
    assert_raises(Net::ReadTimeout) { http.start { http.get("/late") } }
    assert_equal [1, 1], server.connections
  end

  def test_a_stream_is_sent_again_from_where_it_was
    server = serve { |request| (request.number == 1) ? OK : nil }
    get(server)
    put = Net::HTTP::Put.new("/", "Content-Length" => "4")
    put.body_stream = StringIO.new("before body").tap { |stream| stream.pos = 7 }
    start(server) { |http| http.request(put) }
    assert_equal %w[body body], server.requests.last(2).map(&:body)
  end

  # --- limits

  def test_idle_for_too_long
    Heddle::NetHTTP.keep_alive(idle: 0.05)
    server = serve
    get(server)
    wait_until { server.endings == [:eof] }
    get(server)
    assert_equal [1, 2], server.connections
    assert_operator Heddle::NetHTTP.stats[:evicted], :>, @before[:evicted]
  end

  def test_the_server_s_limit
    server = serve { "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 2\r\n\r\nok" }
    get(server)
    get(server)
    wait_until { server.endings == [:eof] }
    assert_equal [1, 1], server.connections
  end

  def test_the_thread_that_closes_ends
    Heddle::NetHTTP.keep_alive(idle: 0.05)
    server = serve
    get(server)
    wait_until { Thread.list.none? { |thread| thread.name == "heddle keep-alive" } }
    assert_equal 0, Heddle::NetHTTP.stats[:idle]
  end

  def test_the_thread_that_closes_ends_when_all_is_cleared
    server = serve
    5.times do
      get(server)
      Heddle::NetHTTP.keep_alive_clear # perhaps before that thread has begun
      wait_until { Thread.list.none? { |thread| thread.name == "heddle keep-alive" } }
    end
  end

  def test_the_most_of_a_host_and_the_most_of_all
    Heddle::NetHTTP.keep_alive(per_host: 2, total: 3)
    servers = [serve, serve]
    servers.each do |server|
      sessions = Array.new(3) { start(server) }
      sessions.each { |http| http.get("/") }
      sessions.each(&:finish)
    end
    assert_equal 3, Heddle::NetHTTP.stats[:idle]
    wait_until { servers.map(&:open) == [1, 2] }
    get(servers[1])
    assert_equal 3, servers[1].connections.last, "the one that rested last"
  end

  def test_clear
    server = serve
    get(server)
    Heddle::NetHTTP.keep_alive_clear
    wait_until { server.endings == [:eof] }
    get(server)
    assert_equal [1, 2], server.connections
  end

  def test_a_clock_that_jumps
    [:CLOCK_BOOTTIME, :CLOCK_REALTIME].each do |clock|
      next unless Process.const_defined?(clock)

      server, other = serve, serve
      get(server)
      get(other)
      with_clock(Process.const_get(clock), 5) { get(server) }
      assert_equal [1, 2], server.connections
      wait_until { other.endings == [:eof] }
    end
  end

  def test_a_host_that_has_moved
    addresses = ["127.0.0.1"]
    asked = 0
    finds = Module.new do
      define_method(:getaddrinfo) do |name, *rest|
        next super(name, *rest) unless name == "localhost"

        asked += 1
        addresses.flat_map { |address| super(address, *rest) }
      end
    end
    server = serve
    Heddle::NetHTTP.keep_alive(idle: 0.3)
    replaced(Addrinfo, finds) do
      visit = -> { Net::HTTP.start("localhost", server.port) { |http| http.get("/") } }
      visit.call
      until asked == 1 # used all the time, and yet looked up
        visit.call
        sleep 0.02
      end
      assert_equal [1], server.connections.uniq
      addresses.replace(["127.0.0.2"])
      visit.call until asked == 2
      visit.call
      assert_equal [1, 2], server.connections.uniq
    end
  end

  # --- processes, Ractors, signals

  def test_a_child_of_fork_has_connections_of_its_own
    server = serve
    get(server)
    session = start(server)
    session.get("/")
    get(server) # idle at the fork
    before = Heddle::NetHTTP.stats
    assert_equal 1, before[:idle]
    _, status = Process.wait2(fork do
      get(server)
      after = Heddle::NetHTTP.stats
      exit!((after.values_at(:reused, :idle) == [before[:reused], 1]) ? 0 : 1)
    end)
    assert_predicate status, :success?
    get(server)
    session.finish
    Array.new(2) { start(server) }.each { |http| http.get("/") && http.finish }
    # The child's own; the idle one again; and instead of the session's, which two processes had, a new one.
    assert_equal [1, 1, 2, 3, 2], server.connections.first(5)
    assert_equal [2, 4], server.connections.last(2).sort
  end

  def test_a_signal_s_handler
    server = serve
    get(server)
    body = nil
    old = trap(:USR2) { body = start(server) { |http| http.get("/").body } }
    Process.kill(:USR2, Process.pid)
    wait_until { body }
    assert_equal "ok", body
  ensure
    trap(:USR2, old || "DEFAULT")
  end

  # Before net-http 0.7 Net::HTTP works in the main Ractor only.
  def test_other_ractors_keep_nothing
    server = serve
    out = assert_child(<<~RUBY)
      require "net/http"
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive
      get = "Net::HTTP.start('127.0.0.1', #{server.port}, nil) { |http| http.get('/').body }"
      eval(get)
      ractor = Ractor.new(get) do |text|
        eval(text)
      rescue => error
        error.class.name
      end
      puts ractor.respond_to?(:value) ? ractor.value : ractor.take
      eval(get)
      p Heddle::NetHTTP.stats.slice(:opened, :reused).values
      $stdout.flush
      exit!(0) # Ruby 4.0 sometimes hangs at the end of a program with a Ractor that used Timeout
    RUBY
    answers, counts = out.lines
    assert_equal "[1, 1]\n", counts
    assert_equal ["ok\n", [1, 2, 1]], [answers, server.connections] if RUBY_VERSION >= "4.0"
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

  def free_port = (@free_port ||= Addrinfo.tcp("127.0.0.1", 0).bind { |socket| socket.local_address.ip_port })

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

  def serve(**options, &answer) = KeepingServer.new(**options, &answer).tap { |server| @servers << server }

  def start(server, &block) = Net::HTTP.start("127.0.0.1", server.port, &block)

  def get(server) = start(server) { |http| http.get("/") }

  def post(server) = start(server) { |http| http.post("/", "a=b").body }

  def uri(server) = URI("http://127.0.0.1:#{server.port}/")

  def subclass = (@subclass ||= Class.new(Net::HTTP))

  def assert_counted(**wanted)
    now = Heddle::NetHTTP.stats
    assert_equal wanted, wanted.to_h { |name, _| [name, now[name] - @before[name]] }
  end

  # Prepends for the block's time.
  def replaced(klass, mod)
    klass.singleton_class.prepend(mod)
    yield
  ensure
    mod.instance_methods(false).each { |name| mod.send(:remove_method, name) }
  end

  def with_clock(clock, seconds, &block)
    jumped = Module.new do
      define_method(:clock_gettime) { |id, *rest| super(id, *rest) + ((id == clock) ? seconds : 0) }
    end
    replaced(Process, jumped, &block)
  end
end
