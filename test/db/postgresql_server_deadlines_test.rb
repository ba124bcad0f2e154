# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"
require "shared/db/multiplexing"

runs_on also: %i[newer_servers]

# With server_deadlines: the server gets the caller's time along with a statement, stops it by itself, and the
# connection goes on. Without a cancel (kill_queries: false), so that nothing else can have stopped it.
class PostgreSQLServerDeadlinesTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL

  def teardown
    @db&.close
    @watcher&.close
  end

  def connect(url = postgresql.url, **options)
    @db&.close
    options = {timeout: 20, kill_queries: false, application_name: "limited", **options}
    @db = DB.connect(url, server_deadlines: true, **options)
  end

  def asleep
    @watcher ||= DB.connect(postgresql.url, timeout: 20)
    @watcher.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep' " \
      "and application_name = 'limited'")
  end

  def own_timeout = @db.query_value("show statement_timeout")

  def assert_late(seconds = 0.1, &block) = assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(seconds, &block) }

  def assert_same_session
    before = @db.query_value("select pg_backend_pid()")
    yield
    assert_equal before, @db.query_value("select pg_backend_pid()")
    assert_equal 0, asleep
  end

  %i[thread fiber].each do |mode|
    define_method(:"test_the_server_stops_a_statement_and_the_connection_goes_on_in_a_#{mode}") do
      in_mode(mode) do
        %i[never always].each do |cache|
          connect(statement_cache: cache)
          assert_same_session do
            5.times { |n| assert_late(0.02 * n + 0.01) { @db.query("select pg_sleep(?)", 30) } }
            assert_late { @db.transaction { @db.each_row("select pg_sleep(30)") { flunk } } }
            assert_late { @db.pipeline(atomic: true) { |p| 2.times { p.query("select pg_sleep(30)") } } }
            statement = @db.prepare("select pg_sleep(30)")
            assert_late { statement.query }
          end
          assert_equal "0", own_timeout
        end
      end
    end
  end

  # Nobody runs while the answer and the deadline come.
  def test_a_client_that_computes_when_both_have_come
    Heddle.run do
      connect
      task = Heddle.spawn { assert_late(0.05) { @db.query("select pg_sleep(30)") } }
      sleep(0.02)
      wait_until(what: "the server's end of the statement") { computed && asleep.zero? }
      assert_kind_of Heddle::DeadlineExceeded, task.value
      assert_equal 1, @db.query_value("select 1")
    end
  end

  def test_a_cancelled_task_does_not_wait_for_the_server
    Heddle.run do
      connect
      task = Heddle.spawn { Heddle.deadline(30) { @db.query("select pg_sleep(30)") } }
      wait_until(what: "the sleep") { asleep == 1 }
      task.cancel
      assert_within(5) { task.wait }
      assert_predicate @db, :closed?
      @watcher.query("select pg_cancel_backend(?)", @db.driver.process_id)
      wait_until(what: "the end of the query") { asleep.zero? }
    end
  end

  def test_the_connections_own_timeout_is_the_servers_too
    connect(timeout: 0.5, connect_timeout: 20)
    error = assert_raises(Heddle::DeadlineExceeded) { @db.query("select pg_sleep(30)") }
    assert_match(/timeout: of 0\.5 s/, error.message)
    assert_equal 1, @db.query_value("select 1")
  end

  # ---- what is left behind

  def test_nothing_is_left_for_the_next_statement
    connect
    Heddle.deadline(0.3) { assert_equal 1, @db.query_value("select 1") }
    assert_equal "0", own_timeout
    @db.query("select pg_sleep(0.4)")
  end

  def test_within_a_transaction_only_the_callers_own_time_counts
    connect(timeout: nil)
    @db.transaction do
      Heddle.deadline(0.2) do
        assert_match(/\A(?:1\d\d|200)ms\z/, @db.query_value("select current_setting('statement_timeout')"))
      end
      @db.query("select pg_sleep(0.3)")
      Heddle.deadline(0.2) { @db.query("select 1") }
      @db.query("select 1; select pg_sleep(0.3)") # a text of several statements
      Heddle.deadline(0.2) { @db.query("select 1") }
      @db.transaction { @db.query("create temporary table slow (n int unique)") }
      assert_equal "0", own_timeout
      Heddle.deadline(0.2) { @db.query("select 1") }
      assert_equal 2, @db.copy_in("copy slow from stdin") { |copy| [1, 2].each { |n| sleep(0.15) && copy << [n] } }
    end
    assert_equal "0", own_timeout
  end

  # The commit runs what was deferred.
  def test_a_commit_gets_the_time_of_its_own_caller
    connect
    @db.query("create temporary table checked (n int)")
    @db.query("create function pg_temp.slowly() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); " \
      "return null; end $$")
    @db.query("create constraint trigger slow after insert on checked deferrable initially deferred for each row " \
      "execute function pg_temp.slowly()")
    @db.transaction { Heddle.deadline(0.2) { @db.exec("insert into checked values (1)") } }
    assert_equal 1, @db.query_value("select count(*) from checked")
  end

  def test_a_transaction_whose_statement_was_stopped
    connect
    assert_same_session do
      error = assert_late { @db.transaction { @db.query("select pg_sleep(30)") } }
      assert_kind_of Heddle::DeadlineExceeded, error
      refute_predicate @db, :in_transaction?
    end
    assert_raises(IndexError) do
      @db.transaction do
        assert_late { @db.query("select pg_sleep(30)") }
        assert_raises(DB::TransactionError) { @db.query("select 1") }
        raise IndexError
      end
    end
    assert_equal "0", own_timeout
  end

  def test_the_sessions_own_limit_stays
    connect(parameters: {statement_timeout: "150ms"})
    error = assert_raises(DB::QueryCanceled) { Heddle.deadline(20) { @db.query("select pg_sleep(30)") } }
    assert_equal "57014", error.sql_state
    assert_late(0.05) { @db.query("select pg_sleep(30)") }
    @db.transaction do
      Heddle.deadline(0.1) { @db.query("select 1") }
      assert_equal "150ms", own_timeout
    end
    assert_equal "150ms", own_timeout
  end

  def test_a_limit_that_the_program_sets_is_replaced_within_a_deadline
    connect(timeout: nil)
    @db.query("set statement_timeout = '100ms'")
    Heddle.deadline(20) { @db.query("select pg_sleep(0.2)") }
    assert_raises(DB::QueryCanceled) { @db.query("select pg_sleep(30)") }
  end

  def test_sequel
    require "sequel"
    db = Sequel.connect(postgresql.url.sub("postgresql", "heddle-postgresql"), server_deadlines: true,
      kill_queries: false, keep_reference: false)
    session = db.get(Sequel.lit("pg_backend_pid()"))
    2.times { assert_late { db.get(Sequel.lit("pg_sleep(30)")) } }
    assert_equal session, db.get(Sequel.lit("pg_backend_pid()"))
  ensure
    db&.disconnect
  end

  # ---- statements that must be first or alone in their transaction

  def test_statements_that_take_no_company
    connect
    @db.query("create table if not exists alone (n int)")
    Heddle.deadline(20) do
      @db.query("vacuum alone")
      @db.query("create index concurrently if not exists alone_n on alone (n)")
      @db.query("do $$ begin commit; end $$")
      @db.transaction do
        @db.query("set transaction isolation level repeatable read")
        @db.query("lock table alone")
        @db.query("select 1")
      end
      @db.query("select 1; select 2")
      assert_equal 0, @db.exec("delete from alone")
      assert_equal 1, @db.copy_in("copy alone from stdin") { |copy| copy << [1] }
    end
  ensure
    @db&.query("drop table alone")
  end

  def test_errors_and_statements_that_the_server_has_lost
    connect(statement_cache: :always)
    Heddle.deadline(20) do
      error = assert_raises(DB::ServerError) { @db.query("select nope") }
      assert_equal 8, error.position
      ["deallocate all", "discard all"].each do |sql|
        @db.query(sql)
        3.times { assert_equal 1, @db.query_value("select ?::int", 1) }
        @db.transaction { assert_equal 2, @db.query_value("select ?::int", 2) }
      end
      assert_raises(DB::ServerError) { @db.transaction { @db.query("select nope") } }
      assert_equal 3, @db.query_value("select 3")
      results = @db.pipeline { |p| Array.new(300) { |n| p.query("select ?::int", n) } }
      assert_equal (0...300).to_a, results.map { |result| result.value.first.first }
      refused = @db.pipeline { |p| [p.query("select 1"), p.query("select nope"), p.query("select 2")] }
      assert_equal [1, DB::ServerError, 2], refused.map { |one| answer { one.value.first.first } }
      seen = []
      @db.transaction { @db.each_row("select generate_series(1, 5)", fetch: 2) { |(n)| seen << n } }
      assert_equal (1..5).to_a, seen
    end
  end

  def answer
    yield
  rescue DB::ServerError => error
    error.class
  end

  def test_a_pool_that_puts_sessions_back
    pool = DB::Pool.new(postgresql.url, size: 1, timeout: 20, kill_queries: false, server_deadlines: true)
    @db = pool
    session = pool.query_value("select pg_backend_pid()")
    assert_late { pool.query("select pg_sleep(30)") }
    pool.with { |db| db.query("set search_path to public") }
    assert_late { pool.query("select pg_sleep(30)") }
    assert_equal session, pool.query_value("select pg_backend_pid()")
    assert_equal "0", pool.query_value("show statement_timeout")
  end

  # What its caller had left is not taken for the session's own limit.
  def test_a_pool_that_puts_a_session_back_within_a_deadline
    @db = pool = DB::Pool.new(postgresql.url, size: 1, timeout: 20, kill_queries: false, server_deadlines: true)
    session = Heddle.deadline(0.3) do
      pool.with { |db| db.query("set search_path to public") && db.query_value("select pg_backend_pid()") }
    end
    assert_equal session, pool.query("select pg_backend_pid() from pg_sleep(0.5)").rows.dig(0, 0)
  end

  # ---- shared connections and poolers

  # Without it, the others' statements wait behind one that nobody waits for any more.
  def test_statements_of_several_tasks
    Heddle.run do
      pool = DB::Pool.new(postgresql.url, size: 1, multiplex: 8, kill_queries: false, server_deadlines: true,
        timeout: 20, application_name: "limited")
      @db = pool
      assert_equal 1, pool.query_value("select ?::int", 1)
      late = Heddle.spawn { assert_late(0.1) { pool.query("select pg_sleep(30)") } }
      others = Array.new(5) { |n| Heddle.spawn { pool.query_value("select ?::int", n) } }
      assert_equal (0...5).to_a, assert_within(5) { others.map(&:value) }
      assert_kind_of Heddle::DeadlineExceeded, late.value
    end
  end

  # Each has a deadline of its own: the last one's, which has none, says nothing of those before.
  def test_all_but_the_last_of_several_tasks_are_late
    Heddle.run do
      @db = pool = DB::Pool.new(postgresql.url, size: 1, multiplex: 8, kill_queries: false, server_deadlines: true)
      assert_equal 1, pool.query_value("select ?::int", 1)
      late = Array.new(4) { Heddle.spawn { assert_late(0.1) { pool.query("select pg_sleep(30)") } } }
      assert_equal 2, Heddle.spawn { pool.query_value("select ?::int", 2) }.value
      late.each { |task| assert_kind_of Heddle::DeadlineExceeded, task.value }
    end
  end

  def test_a_pooler
    pooler = Servers::PgBouncer.new(postgresql).start
    connect(pooler.url)
    Heddle.deadline(20) do
      assert_equal 1, @db.query_value("select ?::int", 1)
      @db.transaction { assert_equal 2, @db.query_value("select ?::int", 2) }
    end
    3.times { assert_late { @db.query("select pg_sleep(30)") } }
    assert_equal "0", own_timeout
    assert_equal 0, asleep
  ensure
    @db&.close
    pooler&.stop
  end

  # ---- what goes over the wire

  # One request, whose setter is prepared once.
  def test_nothing_but_a_few_bytes_more_goes_to_the_server
    requests = Thread::Queue.new
    play = proc do |peer|
      peer.welcome
      peer.request
      peer.raw(Script.message("1") + Script.message("2") + number_row("0") + Script.ready)
      peer.request
      peer.raw(Script.message("1") + Script.message("t", [1, 25].pack("nN")) +
        Script.row("")[0, 27] + Script.ready)
      loop do
        requests << peer.request.map(&:first).join
        peer.raw(Script.message("2") + Script.message("D", "\0\0") + Script.message("C", "SELECT 1\0") +
          Script.message("1") + Script.message("2") + Script.row("a") + Script.ready)
      end
    end
    Script.play(play) do |server|
      connect(server.url, statement_cache: :never)
      2.times { Heddle.deadline(20) { assert_equal "a", @db.query_value("select 'a'") } }
      assert_equal "BEPBDES", requests.pop
      assert_equal "BEPBDES", requests.pop
    end
  end

  def test_a_server_that_has_no_such_setting
    play = proc do |peer|
      peer.welcome
      peer.request
      peer.raw(Script.error("42704", "unrecognized", severity: "ERROR") + Script.ready)
      peer.socket.read
    end
    Script.play(play) do |server|
      error = assert_raises(DB::LoginFailed) { connect(server.url) }
      assert_match(/statement_timeout.*unrecognized/, error.message)
    end
  end

  def test_a_server_that_ends_the_session_when_it_is_asked
    play = proc do |peer|
      peer.welcome
      peer.request
      peer.raw(Script.error("57P01", "shutting down", severity: "FATAL"))
    end
    Script.play(play) do |server|
      error = assert_raises(DB::LoginFailed) { connect(server.url) }
      assert_match(/does not say .* shutting down/, error.message)
    end
  end

  # The question belongs to the connect.
  def test_a_server_that_is_lost_when_it_is_asked
    play = proc do |peer|
      peer.welcome
      peer.request
      peer.socket.close
    end
    Script.play(play) { |server| assert_raises(DB::ConnectionLost) { connect(server.url) } }
  end

  def test_a_server_that_does_not_answer_when_it_is_asked
    play = proc do |peer|
      peer.welcome
      peer.socket.read
    end
    Script.play(play) do |server|
      assert_raises(DB::ConnectTimeout) { connect(server.url, timeout: nil, connect_timeout: 0.2) }
    end
  end

  private

  def number_row(text)
    column = "c\0".b + [0, 0, 23, 4, -1, 1].pack("NnNnNn")
    Script.message("T", [1].pack("n") + column) + Script.message("D", [1, 4, text.to_i].pack("nNN")) +
      Script.message("C", "SELECT 1\0")
  end

  # Holds the thread for a while.
  def computed
    finish = Heddle::Clock.now + 0.1
    nil while Heddle::Clock.now < finish
    true
  end
end
