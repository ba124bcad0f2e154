# frozen_string_literal: true

require "test_helper"
require "support/postgresql_server"

# The server ends a session: its last message says why, and no ReadyForQuery follows.
class PostgreSQLEndedSessionTest < Minitest::Test
  include PostgreSQLHelpers

  hard_deadline 60

  def setup
    @server = postgresql
  end

  def test_a_session_that_an_administrator_ended
    with_two do |db, other|
      terminate(db, other)
      error = assert_raises(Heddle::DB::ConnectionLost) { db.query("select 1") }
      assert_includes error.message, "terminating connection due to administrator command"
      assert_equal "57P01", error.cause.sql_state
      assert_predicate db, :closed?
    end
  end

  def test_a_session_that_ends_in_the_middle_of_its_query
    with_two do |db, other|
      ended = Thread.new do
        db.query("select pg_sleep(20)")
      rescue Heddle::DB::ConnectionLost => error
        error
      end
      wait_until { sleeping?(other) }
      terminate(db, other)
      assert_includes ended.value.message, "terminating connection"
    end
  end

  def test_a_session_that_was_idle_in_a_transaction_for_too_long
    with_two do |db, _|
      db.query("set idle_in_transaction_session_timeout = '50ms'")
      error = assert_raises(Heddle::DB::ConnectionLost) do
        db.transaction do
          wait_until { !db.driver.healthy? }
          db.query("select 1")
        end
      end
      assert_includes error.message, "idle-in-transaction"
    end
  end

  # A machine that is switched off says nothing, neither in PostgreSQL's words nor in those of TLS.
  def test_a_connection_that_ends_over_tls
    server = TestPostgreSQL.shared
    tls = {ca_file: server.ca_file, verify_hostname: false}
    uses = [->(db) { db.query("select 1") }, ->(db) { db.copy_in("copy t from stdin") { |copy| loop { copy << [1] } } }]
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].product(uses) do |host, use|
      with_cut(server.port) do |port, cut|
        host.call do
          db = Heddle::DB.connect(server.url.sub(":#{server.port}/", ":#{port}/"), timeout: 20, tls: tls)
          db.exec("create temporary table t (n int)")
          cut.call
          assert_raises(Heddle::DB::ConnectionLost) { use.call(db) }
          assert_predicate db, :closed?
        end
      end
    end
  end

  private

  # Yields a port that leads to the server's, and what ends the connections over it.
  def with_cut(server)
    listener = TCPServer.new("127.0.0.1", 0)
    sockets = []
    threads = [Thread.new do
      pair = [listener.accept, TCPSocket.new("127.0.0.1", server)]
      sockets.concat(pair)
      [pair, pair.reverse].each { |from, to| threads << Thread.new { forward(from, to) } }
    end]
    yield listener.addr[1], -> { sockets.each { |socket| socket.shutdown(:WR) } }
  ensure
    threads.each(&:kill).each(&:join)
    [listener, *sockets].each(&:close)
  end

  def forward(from, to)
    IO.copy_stream(from, to)
  rescue IOError, SystemCallError
    nil
  end

  def with_two
    connections = Array.new(2) { Heddle::DB.connect(@server.url, timeout: 20) }
    yield(*connections)
  ensure
    connections&.each(&:close)
  end

  def terminate(db, other)
    id = db.driver.process_id
    assert other.query_value("select pg_terminate_backend(?)", id)
    wait_until { other.query_value("select count(*) from pg_stat_activity where pid = ?", id).zero? }
  end

  def sleeping?(other)
    other.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'").positive?
  end
end
