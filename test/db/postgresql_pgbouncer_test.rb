# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

runs_on also: %i[newer_servers]

# PgBouncer in transaction mode, where each transaction may have another session of the server; and servers that speak
# the protocol without all its parts.
class PostgreSQLPgBouncerTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL

  # @return [Servers::PgBouncer] of this process
  def self.shared(postgresql)
    @shared ||= Servers::PgBouncer.new(postgresql).start.tap do |server|
      owner = Process.pid
      at_exit { server.stop if Process.pid == owner }
    end
  end

  def pooler
    self.class.shared(postgresql)
  end

  def connected(**options)
    db = DB.connect(pooler.url, timeout: 20, **options)
    yield db
  ensure
    db&.close
  end

  def test_values_transactions_and_cursors
    connected(statement_cache: :never) do |db|
      assert_equal [1, "a"], db.query_row("select ?::int, ?", 1, "a")
      db.transaction do
        db.exec("create temporary table kept (n int) on commit drop")
        db.exec("insert into kept select generate_series(1, 5)")
        seen = []
        db.each_row("select n from kept order by n", fetch: 2) { |(n)| seen << n }
        assert_equal (1..5).to_a, seen
      end
      assert_raises(DB::ServerError) { db.query("select nope") }
      assert_raises(DB::ServerError) { db.transaction { db.query("select nope") } }
      assert_equal 7, db.query_value("select 7")
      futures = db.pipeline { |p| Array.new(5) { |n| p.query("select ?::int", n) } }
      assert_equal (0..4).to_a, futures.map { |future| future.value[0][0] }
    end
  end

  # Without a cache no statement has a name that another session would lack, or have already.
  def test_without_a_cache_only_the_unnamed_statement_is_used
    seen = Thread::Queue.new
    play = proc do |peer|
      peer.welcome
      loop do
        peer.request.each { |type, rest| seen << [type, rest[/\A[^\0]*/]] if %w[P B C].include?(type) }
        peer.raw(["1", "2"].map { |type| Script.message(type) }.join + Script.row("1") + Script.ready)
      end
    end
    Script.play(play) do |server|
      db = DB.connect(server.url, timeout: 20, statement_cache: :never)
      3.times { db.query("select 1") }
      db.close
      assert_equal [["P", ""], ["B", ""]], Array.new(seen.size) { seen.pop }.uniq
    end
  end

  # Four sessions of the server, twelve clients: each finds the others' sessions.
  def test_many_clients_over_few_sessions
    pool = DB::Pool.new(pooler.url, size: 12, timeout: 20, statement_cache: :never)
    Heddle.run do
      tasks = Array.new(60) do |n|
        Heddle.spawn do
          next pool.query_value("select ?::int", n) unless (n % 3).zero?

          pool.transaction { |db| db.query_value("select ?::int", n) }
        end
      end
      assert_equal (0...60).to_a, tasks.map(&:value)
    end
  ensure
    pool&.close
  end

  def test_the_server_stops_an_interrupted_query
    watcher = DB.connect(postgresql.url, timeout: 20)
    asleep = -> { watcher.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") }
    connected { |db| assert db.ping } # starts the pooler
    %i[thread fiber].each do |mode|
      before = descriptor_count
      in_mode(mode) do
        connected do |db|
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query("select pg_sleep(30)") } }
          assert_predicate db, :closed?
        end
      end
      wait_until(what: "the end of the query") { asleep.call.zero? }
      wait_until(what: "the close of the sockets") { descriptor_count <= before } if mode == :thread
    end
  ensure
    watcher&.close
  end

  def test_logins_that_a_pooler_refuses
    error = assert_raises(DB::LoginFailed) { DB.connect(pooler.url, timeout: 20, parameters: {work_mem: "5MB"}) }
    assert_match(/startup parameter: work_mem.*ignore_startup_parameters/, error.message)
    error = assert_raises(DB::LoginFailed) do
      DB.connect(pooler.url.sub("heddle-test", "hush"), timeout: 20)
    end
    refute_includes error.full_message, "hush"
  end

  # PgBouncer does not know protocol 3.2. Old versions close the connection, newer ones answer with 3.0.
  def test_the_pooler_gets_protocol_3_0
    connected { |db| assert_equal 4, db.driver.instance_variable_get(:@login).secret.bytesize }
  end

  def test_sessions_that_the_pooler_ends
    own = Servers::PgBouncer.new(postgresql).start
    pool = DB::Pool.new(own.url, size: 2, timeout: 20)
    assert_equal 1, pool.query_value("select 1")
    own.stop
    assert_raises(Errno::ECONNREFUSED) { pool.query_value("select 1") }
  ensure
    pool&.close
    own&.stop
  end

  # Sessions are shared: a name of one client must not be another's.
  def test_statements_of_two_clients_in_one_session
    own = Servers::PgBouncer.new(postgresql, default_pool_size: 1).start
    clients = Array.new(3) { DB.connect(own.url, timeout: 20, statement_cache: :always) }
    3.times do
      clients.each_with_index { |db, n| assert_equal [n], db.query_column("select #{n}") }
      clients.each_with_index { |db, n| assert_equal [n + 7], db.query_column("select ?::int + #{n}", 7) }
    end
    assert_equal [2, 2, 2], clients.map(&:cached_statements)
  ensure
    clients&.each(&:close)
    own&.stop
  end

  # Four sessions, eight clients, statements that stay prepared: each is prepared where it is missing.
  def test_prepared_statements_over_few_sessions
    pool = DB::Pool.new(pooler.url, size: 8, timeout: 20, statement_cache: :always)
    Heddle.run do
      tasks = Array.new(8) do |n|
        Heddle.spawn { Array.new(20) { |m| pool.query_value("select ?::int + #{m % 3}", n) } }
      end
      tasks.each_with_index { |task, n| assert_equal Array.new(20) { |m| n + m % 3 }, task.value }
    end
  ensure
    pool&.close
  end

  # The columns, their types and the rows may each go by another session.
  def test_copies_in_the_binary_form
    postgresql.sql("create type copied_kind as enum ('one', 'two');" \
      "create table copied (n int, day date, kinds copied_kind[], price numeric)")
    pool = DB::Pool.new(pooler.url, size: 8, timeout: 20, statement_cache: :never)
    rows = Array.new(100) { |n| [n, Date.new(2024, 1, 1) + n, ["one", nil, "two"], BigDecimal("#{n}.25")] }
    Heddle.run do
      tasks = Array.new(8) do |n|
        Heddle.spawn do
          sql = ["copy copied from stdin (format binary)", "copy binary copied from stdin"][n % 2]
          pool.with { |db| db.copy_in(sql) { |copy| rows.each { |row| copy << row } } }
        end
      end
      assert_equal [100] * 8, tasks.map(&:value)
    end
    pool.with do |db|
      found = []
      assert_equal(800, db.copy_out("copy (select * from copied order by n) to stdout binary") { |row| found << row })
      assert_equal rows.flat_map { |row| [row] * 8 }, found
      error = assert_raises(TypeError) { db.copy_in("copy copied from stdin binary") { |copy| copy << ["x"] * 4 } }
      assert_match(/row 1, column n/, error.message)
      assert_equal 7, db.query_value("select 7")
    end
  ensure
    pool&.close
    postgresql.sql("drop table if exists copied; drop type if exists copied_kind")
  end

  # ---- statements that are not where they were prepared

  # A SET is of the session of the server, not of the client, which may get another one: settings belong into SET LOCAL
  # or a transaction. The reset of a pool's session must not fail, though, nor lose the statements of others.
  def test_settings_of_a_session_and_their_reset
    pool = DB::Pool.new(pooler.url, size: 3, timeout: 20, statement_cache: :always)
    12.times do |n|
      pool.with do |db|
        db.query("set work_mem = '7MB'") if n.even?
        assert_equal n, db.query_value("select ?::int", n)
        db.transaction do
          db.query("set local work_mem = '9MB'")
          assert_equal "9MB", db.query_value("select current_setting('work_mem')")
        end
      end
    end
    assert_equal [0], Array.new(6) { pool.stats[:connections] - pool.stats[:free] }.uniq
  ensure
    pool&.close
  end

  # Another client has closed all statements of the session: DISCARD ALL, or a server that was restarted.
  def test_statements_that_another_client_discarded
    own = Servers::PgBouncer.new(postgresql, default_pool_size: 1).start
    one, other = clients = Array.new(2) { DB.connect(own.url, timeout: 20, statement_cache: :always) }
    statement = one.prepare("select ?::int + 7")
    3.times do |n|
      assert_equal [[n + 7], [n]], [statement.query(n).first, one.query_row("select ?::int", n)]
      other.query("discard all")
    end
    error = assert_raises(DB::ServerError, DB::ConnectionLost) do
      one.transaction do
        one.query("select 1")
        one.query("deallocate all")
        statement.query(1)
      end
    end
    # Newer versions keep statements themselves, and hang up on a client whose statement they have discarded.
    return assert_predicate(one, :closed?) if error.is_a?(DB::ConnectionLost)

    assert_equal "26000", error.sql_state
    assert_equal [[8], [1]], [statement.query(1).first, one.query_row("select ?::int", 1)]
  ensure
    clients&.each(&:close)
    own&.stop
  end

  # ---- servers that lack parts

  # CockroachDB says in its own words that a portal cannot be left half read.
  def test_a_server_without_suspended_portals
    play = proc do |peer|
      peer.welcome({"server_version" => "13.0.0", "crdb_version" => "CockroachDB"})
      loop do
        request = peer.request
        limited = request.any? { |type, rest| type == "E" && rest.unpack("Z*N").last.positive? }
        held = request.any? { |type, rest| type == "P" && rest.include?("WITH HOLD") }
        if held || (!limited && request.any? { |type, _| type == "E" })
          peer.raw(Script.error("0A000", "unimplemented: WITH HOLD", severity: "ERROR")) if held
          peer.raw(%w[1 2].map { |type| Script.message(type) }.join + Script.row("all")) unless held
          peer.raw(Script.ready)
          next
        end
        transaction = request.any? { |type, rest| %w[P Q].include?(type) && rest.match?(/BEGIN/i) }
        peer.raw(Script.error("0A000", "unimplemented: multiple active portals", severity: "ERROR")) if limited
        peer.raw(Script.message("C", "BEGIN\0")) if transaction
        peer.raw(Script.message("C", "ROLLBACK\0")) if request.last.last.match?(/ROLLBACK/i)
        open = transaction || limited
        peer.raw(Script.ready((limited && "E") || (open && "T") || "I"))
      end
    end
    Script.play(play) do |server|
      db = DB.connect(server.url, timeout: 20)
      error = assert_raises(DB::ServerError) do
        db.transaction { db.each_row("select 1", fetch: 1) { |_| flunk } }
      end
      assert_match(/portals/, error.message)
      assert_match(/hint:.*use query, which returns all rows at once/, error.explanation)
      assert_equal [["all"]], db.each_row("select 1", fetch: 1).to_a
      refute_predicate db, :closed?
      db.close
    end
  end
end
