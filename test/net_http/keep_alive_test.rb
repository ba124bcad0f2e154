# frozen_string_literal: true

require "test_helper"
require "stringio"
require "support/keep_alive_helpers"

# Which sessions share a persistent connection in threads, tasks, processes and Ractors, and that callers see nothing of
# it.
class KeepAliveTest < Minitest::Test
  include KeepAliveHelpers

  mode :thread

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
  def test_a_deadlock_beside_persistent_connections
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

  # The rest of a session's cost is the library's own.
  def test_few_objects_beside_those_of_a_request
    server = serve
    session = start(server)
    in_session = objects_each { session.get("/") }
    session.finish
    assert_operator objects_each { start(server) { |http| http.get("/") } } - in_session, :<=, 6
    assert_equal [1], server.connections.uniq
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

  # --- programs that change what sessions are made of

  def test_a_program_that_makes_buffers_itself
    server = serve
    get(server)
    made = 0
    Net::BufferedIO.define_singleton_method(:new) do |*arguments, **options|
      made += 1
      super(*arguments, **options)
    end
    get(server)
    assert_equal [[1, 1], 1], [server.connections, made]
  ensure
    Net::BufferedIO.singleton_class.send(:remove_method, :new)
  end

  # In the way of a library that only watches, see KeepAlive::OverrideDetector.
  def test_an_error_of_a_watcher_closes_the_connection
    server = serve
    out = assert_child(<<~RUBY)
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive
      Net::HTTP.class_eval("def on_connect = $fails && raise('late')", "/gems/lib/sentry/net/http.rb")
      Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/"))
      $fails = true
      begin
        Net::HTTP.start("127.0.0.1", #{server.port})
      rescue => error
        p error.message
      end
      $fails = false
      p Heddle::NetHTTP.stats.values_at(:reused, :idle)
      Net::HTTP.get(URI("http://127.0.0.1:#{server.port}/"))
    RUBY
    assert_equal %("late"\n[1, 0]\n), out
    assert_equal [1, 2], server.connections
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

  def test_a_frozen_request
    server = serve
    request = Net::HTTP::Get.new("/").freeze
    2.times { assert_equal "ok", Net::HTTP.new("127.0.0.1", server.port).request(request).body }
  end

  def test_dumped_answers_and_requests
    server = serve
    request = Net::HTTP::Get.new("/")
    response = start(server) { |http| http.request(request) }
    [request, response].each { |one| refute_includes Marshal.dump(one), "heddle" }
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

  def test_max_retries_is_the_callers_own_inside_a_block
    server = serve
    get(server)
    start(server) do |http|
      http.request_get("/") { assert_equal 1, http.max_retries }
      assert_equal 1, http.max_retries
    end
    assert_equal [1, 1], server.connections
  end

  def test_debug_output_names_a_persistent_connection
    server = serve
    get(server)
    http = Net::HTTP.new("127.0.0.1", server.port)
    http.set_debug_output(output = StringIO.new)
    http.start { http.get("/") }
    assert_includes output.string, "using a persistent connection to 127.0.0.1:#{server.port}\n"
    assert_includes output.string, "GET / HTTP/1.1"
    get(server)
    assert_equal [1] * 3, server.connections
  end

  # A dup has the same BufferedIO, and a program may have saved it.
  def test_nobody_else_can_use_a_persistent_connection
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

  def test_persistent_connections_that_move
    skip "this Ruby cannot compact" unless GC.respond_to?(:compact)
    server = serve
    2.times { get(server) && GC.compact }
    start(server) { |http| GC.compact && http.get("/") && GC.compact }
    assert_counted(opened: 1, reused: 2)
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

  # The parent goes on to use the persistent connection.
  def test_a_child_of_a_fork_in_a_filter_has_a_connection_of_its_own
    server = serve
    get(server)
    {true => 1, false => 0}.each do |allowed, idle|
      child = nil
      before = Heddle::NetHTTP.stats[:reused]
      Heddle.connect_filter(->(*) { (child ||= fork || :child) && allowed }) do
        get(server)
      rescue Heddle::ConnectRefused
        flunk if allowed
      end
      exit!(Heddle::NetHTTP.stats.values_at(:reused, :idle) == [before, idle]) if child == :child
      assert_predicate Process.wait2(child).last, :success?
    end
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

  private

  def objects_each(times = 20, &block)
    5.times(&block)
    before = GC.stat(:total_allocated_objects)
    times.times(&block)
    (GC.stat(:total_allocated_objects) - before) / times
  end
end
