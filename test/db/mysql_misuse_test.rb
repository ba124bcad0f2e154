# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"

# Invalid arguments get an error that says what to do, before anything is sent: the connection stays usable.
class MySQLMisuseTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  DB = Heddle::DB

  def setup
    @db = DB.connect(mariadb.url, timeout: 20)
    @pool = DB::Pool.new(mariadb.url, timeout: 20, size: 1)
  end

  def teardown
    @db&.close
    @pool&.close
  end

  def refuses(pattern, *classes)
    classes = [ArgumentError, TypeError] if classes.empty?
    error = assert_raises(*classes) { yield }
    assert_match pattern, error.message
    assert_equal 1, @db.query_value("select 1")
    assert_equal 1, @pool.query_value("select 1")
  end

  def test_sql_that_is_not_a_string
    [nil, 7, :sql, ["select 1"]].each do |sql|
      [@db, @pool].each do |one|
        %i[query exec query_value query_row query_row_or_nil query_column].each do |name|
          refuses(/SQL must be a String, not/) { one.public_send(name, sql) }
        end
        refuses(/SQL must be a String, not/) { one.each_row(sql) { flunk } }
        refuses(/SQL must be a String, not/) { one.pipeline { |p| p.query(sql) } }
      end
      refuses(/SQL must be a String, not/) { @db.prepare(sql) }
    end
  end

  def test_methods_of_a_connection_without_their_block
    refuses(/block/) { @db.transaction }
    refuses(/block/) { @pool.transaction }
    refuses(/block/) { @db.pipeline }
    refuses(/block/) { @pool.pipeline }
    refuses(/block/) { @pool.with }
    refute_predicate @db, :in_transaction?
    assert_equal({connections: 1, free: 1, waiting: 0}, @pool.stats)
  end

  # Its Enumerator holds a connection from its first row to its last.
  def test_rows_of_a_pool_without_a_block
    rows = @pool.each_row("select seq from seq_1_to_5 where seq > ?", 2, fetch: 2)
    assert_instance_of Enumerator, rows
    assert_equal [[3], [4], [5]], rows.to_a
    assert_equal [[3]], rows.first(1)
    assert_equal [3, 4, 5], rows.lazy.map(&:first).to_a
    assert_equal({connections: 1, free: 1, waiting: 0}, @pool.stats)
  end

  def test_an_array_for_one_parameter
    refuses(/Array.*\(\?, \?, \?\).*\*/m) { @db.query("select 1 where 1 in (?)", [1, 2, 3]) }
    refuses(/Array.*empty/m) { @db.query("select 1 where 1 in (?)", []) }
    refuses(/Hash/) { @db.query("select ?", {a: 1}) }
    refuses(/Object/) { @db.query("select ?", Object.new) }
  end

  def test_exec_of_a_statement_returns_the_affected_rows
    @db.exec("create temporary table t (id int)")
    statement = @db.prepare("insert into t values (?), (?)")
    assert_equal 2, statement.exec(1, 2)
    assert_equal 2, statement.query(3, 4).affected_rows
    assert_equal 4, @db.exec("delete from t")
    statement.close
    refuses(/closed/, DB::StatementClosed) { statement.exec(1, 2) }
  end

  def test_options_of_transactions_and_pipelines
    refuses(/isolation/) { @db.transaction(isolation: :chaos) { flunk } }
    [-1, 1.5, "3", :many].each { |tries| refuses(/retry: must be/) { @db.transaction(retry: tries) { flunk } } }
    [0, 101, "x"].each { |limit| refuses(/limit/) { @db.pipeline(limit: limit) { flunk } } }
    [0, -1, "x", nil, 1 << 32].each { |fetch| refuses(/fetch/) { @db.each_row("select 1", fetch: fetch) { flunk } } }
  end

  def test_options_of_pools
    {size: [0, -1, nil, "x"], checkout_timeout: [0, -1, "x", Float::NAN], idle: [0, -1, "x"]}.each do |name, values|
      values.each { |value| refuses(/#{name}: must be/) { DB::Pool.new(mariadb.url, name => value) } }
    end
    refuses(/mysql:\/\/user:password@host\/base/) { DB::Pool.new(nil) }
    refuses(/timeout: must be/) { DB::Pool.new(mariadb.url, timeout: -1) }
    refuses(/hue/) { DB::Pool.new(mariadb.url, hue: "red") }
  end

  # A pool with a timeout for operations does not wait longer than that for a connection.
  def test_a_pools_timeout_bounds_the_wait_for_a_connection
    ["", "?timeout=0.3"].each do |query|
      pool = DB::Pool.new("#{mariadb.url}#{query}", size: 1, **(query.empty? ? {timeout: 0.3} : {}))
      pool.with do
        error = assert_within(1.5, at_least: 0.25) { assert_raises(DB::PoolTimeout) { pool.query("select 1") } }
        assert_match(/0\.3 s/, error.message)
      end
      pool.close
    end
    pool = DB::Pool.new(mariadb.url, size: 1, timeout: 5, checkout_timeout: 0.2)
    pool.with { assert_within(1, at_least: 0.15) { assert_raises(DB::PoolTimeout) { pool.query("select 1") } } }
    pool.close
  end

  def test_use_after_close
    db = DB.connect(mariadb.url, timeout: 20)
    statement = db.prepare("select 1")
    db.close
    [-> { db.query("select 1") }, -> { db.ping }, -> { db.prepare("select 1") }, -> { db.transaction { flunk } },
      -> { db.each_row("select 1") { flunk } },
      -> { statement.query }, -> { db.pipeline { |p| p.query("select 1") } }].each do |use|
      error = assert_raises(DB::ConnectionLost) { use.call }
      assert_match(/closed/, error.message)
      refute_match(/may or may not/, error.message)
    end
    assert_nil statement.close
    assert_nil db.close
    refute_predicate db, :healthy?
  end

  # Closed by another thread in the middle of a query, which may well have run.
  def test_a_close_during_a_query
    watcher = DB.connect(mariadb.url, timeout: 20)
    query = Thread.new { assert_raises(DB::ConnectionLost) { @db.query("select sleep(10)") } }
    sleeps = "select count(*) from information_schema.processlist where state = 'User sleep'"
    wait_until(what: "the query to run") { watcher.query_value(sleeps) == 1 }
    assert_raises(DB::Busy) { @db.query("select 1") }
    @db.close
    assert_match(/may or may not/, query.value.message)
    2.times do
      error = assert_raises(DB::ConnectionLost) { @db.query("select 1") }
      assert_match(/ is closed \(closed stream\): nothing was sent/, error.message)
    end
  ensure
    watcher&.close
  end

  def test_durations
    [nil, "x", Float::NAN, Float::INFINITY, []].each { |value| refuses(/microseconds/) { DB::Duration.new(value) } }
    [nil, 7, "", "1:2", "x"].each { |text| refuses(/not a time|-12:34/) { DB::Duration.parse(text) } }
    refuses(/838/) { @db.query("select ?", DB::Duration.new(839 * 3600 * 1_000_000)) }
    refuses(/838/) { @db.query("select ?", DB::Duration.new(1 << 80)) }
  end

  # They run a statement, or a block, and end no transaction.
  def test_statements_that_end_no_transaction
    @db.exec("create or replace temporary table t (id int)")
    @db.transaction do
      @db.exec("insert into t values (1)")
      ["analyze select * from t", "ANALYZE format=json select 1", "analyze /* x */ update t set id = 2",
        "begin not atomic select 1; end"].each do |sql|
        @db.query(sql)
        assert_predicate @db, :in_transaction?, sql
      end
      ["analyze table t", "analyze local table t", "analyze no_write_to_binlog table t", "begin",
        "begin work"].each do |sql|
        assert_raises(DB::TransactionError) { @db.query(sql) }
      end
    end
  end

  # The server's max_allowed_packet: the error says that the connection has ended, which is true.
  def test_more_than_max_allowed_packet
    [17, 40].each do |megabytes|
      db = DB.connect(mariadb.url, timeout: 20)
      error = assert_raises(DB::ConnectionLost) { db.query("select length(?)", "x" * (megabytes << 20)) }
      assert_match(/max_allowed_packet|lost/, error.message)
      assert_predicate db, :closed?
      assert_match(/closed/, assert_raises(DB::ConnectionLost) { db.query("select 1") }.message)
    end
  end
end
