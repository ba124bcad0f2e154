# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"
require "support/scripted_mysql"

# KILL QUERY takes a number, which names another connection on another server. No other client's query may be killed.
class MySQLKillTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  S = ScriptedMySQL

  def connect(url = mariadb.url, **options)
    Heddle::DB.connect(url, timeout: 10, **options)
  end

  def interrupt(db, sql = "select sleep(20)")
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query(sql) } }
  end

  def killer = Thread.list.find { |thread| thread.name == "heddle kill query" }

  def wait_for_killer = wait_until(what: "the killing thread to end") { killer.nil? }

  def sleepers(db) = db.query_value("select count(*) from information_schema.processlist where state = 'User sleep'")

  def test_an_interrupted_query_is_killed
    watcher = connect
    ways = {tcp: {}, tls: {tls: {ca_file: mariadb.ca_file}}, unix: {socket: mariadb.socket}}
    ways.each do |name, way|
      db = connect(**way)
      interrupt(db)
      wait_until(3, what: "the end of the query over #{name}") { sleepers(watcher).zero? }
    end
    Heddle.run do
      8.times.map { Heddle.spawn { interrupt(connect) } }.each(&:value)
    end
    wait_until(5, what: "the end of all queries") { sleepers(watcher).zero? }
    watcher.close
  end

  def test_kill_queries_false_kills_nothing
    watcher = connect
    [connect(kill_queries: false), connect("#{mariadb.url}?kill_queries=false")].each do |db|
      interrupt(db, "select sleep(1)")
      assert_nil killer
    end
    assert_equal 2, sleepers(watcher)
    wait_until(5) { sleepers(watcher).zero? }
    watcher.close
  end

  # Sends each connection to the next of the servers, and connections after the last to the last server.
  class Balancer
    attr_reader :port

    def initialize(*ports)
      @listener = TCPServer.new("127.0.0.1", 0)
      @port = @listener.addr[1]
      @thread = Thread.new do
        loop do
          client = @listener.accept
          server = TCPSocket.new("127.0.0.1", (ports.size > 1) ? ports.shift : ports.first)
          [[client, server], [server, client]].each { |from, to| Thread.new { forward(from, to) } }
        end
      rescue IOError
        nil
      end
    end

    def forward(from, to)
      loop { to.write(from.readpartial(65536)) }
    rescue IOError, SystemCallError
      [from, to].each(&:close)
    end

    def close
      @listener.close
      @thread.join
    end
  end

  # @return the first connection with that number or a higher one
  def count_to(number, url)
    loop do
      db = connect(url)
      return db if db.driver.thread >= number

      db.close
    end
  end

  # The killing connection reaches another server, where the number belongs to an innocent client.
  def test_nothing_is_killed_on_another_server_behind_a_balancer
    other = TestMariaDB.new.start
    count_to(connect(other.url).driver.thread + 5, mariadb.url)
    balancer = Balancer.new(mariadb.port, other.port)
    db = connect(mariadb.url.sub(":#{mariadb.port}/", ":#{balancer.port}/"))
    number = db.driver.thread
    innocent = count_to(number, other.url)
    watcher = connect(other.url)
    assert_equal number, innocent.driver.thread
    sleeping = Thread.new { innocent.query_value("select sleep(2)") }
    wait_until(what: "the innocent's query") { sleepers(watcher) == 1 }
    interrupt(db, "select sleep(1)")
    wait_for_killer
    assert_equal 0, sleeping.value, "an innocent's query was killed"
  ensure
    balancer&.close
    other&.stop
  end

  # Plays a server: its first connection gets a query, and does not answer; requests on others are recorded.
  def with_server(thread: 8, first: ->(_) { sleep }, rows: [])
    asked = Thread::Queue.new
    connections = 0
    server = S.new do |peer|
      if (connections += 1) == 1
        peer.welcome
        first.call(peer.tap(&:request))
      else
        peer.greet(thread: thread)
        peer.ok(peer.response[:sequence] + 1)
        loop do
          asked << (request = peer.request)
          case request
          when /\A\x03SELECT 1 FROM/ then peer.write(1, "\1", S.column("1", 8), *rows, S.ok(first: 0xfe))
          when /\A\x03/ then peer.ok
          end
        end
      end
    end
    yield server, asked
    assert_empty server.errors
  ensure
    server&.close
  end

  def all(queue) = Array.new(queue.size) { queue.pop }

  def test_only_a_query_that_the_server_runs_is_killed
    with_server do |server, asked|
      interrupt(connect(server.url))
      wait_for_killer
      wait_until { asked.size == 2 }
      assert_equal ["\x03SELECT 1 FROM informat", "\x01"], all(asked).map { |request| request[0, 23] }
    end
  end

  def test_a_query_that_the_server_runs_is_killed
    with_server(rows: ["\1" + "1"]) do |server, asked|
      db = connect(server.url)
      port = db.driver.stream.to_io.local_address.ip_port
      interrupt(db)
      wait_for_killer
      wait_until { asked.size == 3 }
      question, kill, = all(asked)
      assert_includes question, "':#{port}'"
      assert_includes question, "theirs.id = 7 AND"
      assert_equal "\x03KILL QUERY 7", kill
    end
  end

  # Numbers only grow: a lower one means that the server was restarted.
  def test_nothing_is_killed_on_a_restarted_server
    with_server(thread: 3, rows: ["\1" + "1"]) do |server, asked|
      interrupt(connect(server.url))
      wait_for_killer
      wait_until { asked.size == 1 }
      assert_equal ["\x01"], all(asked)
    end
  end

  # A client that was told that its connection has ended need not kill anything.
  def test_nothing_is_killed_after_a_lost_connection
    endings = {close: :close.to_proc, nonsense: ->(peer) { peer.raw("\1\0\0\5x") && sleep }}
    endings.each do |name, ending|
      with_server(first: ending, rows: ["\1" + "1"]) do |server, asked|
        db = connect(server.url)
        assert_raises(Heddle::DB::ConnectionLost, Heddle::DB::ProtocolError, name) { db.query("select 1") }
        assert_nil killer, name
        assert_empty asked
      end
    end
  end

  # One connection kills for many interrupted queries at once, or few do one after another.
  def test_few_connections_kill_many_queries
    watcher = connect
    dbs = Array.new(30) { connect }
    made = watcher.query_row("show global status like 'Connections'")[1].to_i
    dbs.map { |db| Thread.new { interrupt(db, "select sleep(5)") } }.each(&:value)
    wait_until(10) { sleepers(watcher).zero? }
    wait_for_killer
    assert_operator watcher.query_row("show global status like 'Connections'")[1].to_i - made, :<=, 15
    watcher.close
  end

  # A child does not kill queries that were interrupted in its parent.
  def test_a_child_of_fork_kills_no_query_of_its_parent
    with_server(rows: ["\1" + "1"]) do |server, asked|
      db = connect(server.url)
      Process.wait(fork do
        interrupted = begin
          db.query("select 1")
        rescue Heddle::DB::ConnectionLost
          killer.nil?
        end
        exit!(interrupted ? 0 : 1)
      end)
      assert_predicate $?, :success?
      assert_empty asked
      db.close
    end
  end
end
