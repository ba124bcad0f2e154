# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"
require "heddle/db/sqlite"

# One connection that writes, and several that read.
class SQLitePoolTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  DB = Heddle::DB
  private_constant :DB

  def test_readers_read_while_the_writer_writes
    Heddle.run do
      with_pool(readers: 2) do |pool|
        pool.query("create table t (n int)")
        pool.transaction do |db|
          db.exec("insert into t values (1)")
          assert_equal 1, pool.query_value("select count(*) from t") # the transaction's own
          assert_equal 0, Heddle.spawn { pool.query_value("select count(*) from t") }.value
          assert_equal [0, 0], Heddle.spawn { pool.each_row("select count(*), 0 from t").first }.value
        end
        assert_equal 1, pool.query_value("select count(*) from t")
        10.times.map { |n| Heddle.spawn { pool.exec("insert into t values (?)", n) } }.each(&:value)
        assert_equal 11, pool.query_value("select count(*) from t")
        assert_equal [1, 1], [pool.stats[:writer][:connections], pool.stats[:readers][:connections].clamp(1, 1)]
      end
    end
  end

  def test_reads_go_to_readers_and_writes_to_the_writer
    with_pool do |pool|
      pool.query("create table t (n int)")
      seen = []
      listeners = pool.on_query { |event| seen << event.sql }
      reads = ->(sql) { pool.send(:pool_for, sql).equal?(pool.instance_variable_get(:@readers)) }
      ["select 1", " -- x\nSELECT 1", "values (1)", "explain query plan delete from t", DB.bind("select ?", 1),
        DB.virtual_statement { "select 1" }].each { |sql| assert reads.call(sql), sql.inspect }
      ["with a as (select 1) insert into t select * from a", "insert into t values (1)", "pragma user_version",
        "select 1; delete from t"].each { |sql| refute reads.call(sql), sql }
      assert_raises(DB::ReadOnly) { pool.with(read_only: true) { |db| db.exec("insert into t values (1)") } }
      assert_raises(DB::ReadOnly) { pool.transaction(read_only: true) { |db| db.exec("insert into t values (1)") } }
      assert_equal 1, pool.with { |db| db.exec("insert into t values (1)") }
      insert = pool.prepare("insert into t values (?)")
      assert_equal [1, 1], [insert.exec(2), insert.exec(3)]
      assert_equal [[1], [2], [3]], pool.prepare("select n from t where n > ? order by n").query(0).rows
      assert_equal ["t"], pool.list_tables
      assert pool.table_exists?("t")
      assert_equal [[4]], pool.pipeline { |p| p.query("select 4") }.value.rows
      assert_includes seen, "select 4"
      listeners.close
      assert_raises(TypeError) { pool.query(nil) }
    end
  end

  # A reader has inserted nothing.
  def test_what_functions_tell_of_the_statement_before
    with_pool do |pool|
      pool.exec("create table counted (id integer primary key)")
      pool.exec("insert into counted values (41), (42)")
      assert_equal 42, pool.query_value("select last_insert_rowid()")
      assert_equal 2, pool.prepare("select Changes /* x */ () as n").query[0][0]
      assert_operator pool.each_row('select "total_changes"()').first.first, :>=, 2
    end
  end

  def test_a_setting_does_not_reach_the_next_user
    pool = DB::Pool.new("sqlite://#{@path}", size: 1)
    ["pragma foreign_keys = off", 'pragma "foreign_keys" = off', "pragma/**/foreign_keys = off",
      "pragma main /* - */ . foreign_keys (0)", "select 1; pragma [foreign_keys]=0"].each do |sql|
      pool.with { |db| db.query(sql) }
      assert_equal 1, pool.with { |db| db.query_value("pragma foreign_keys") }, sql
    end
    one = pool.with { |db| db }
    ["pragma foreign_keys", "PRAGMA main.table_info(t); -- -", "pragma user_version /* - */;"].each do |sql|
      pool.with { |db| db.query(sql) }
      assert_same one, pool.with { |db| db }, sql
    end
    pool.close
  end

  # An Enumerator that stopped in the middle keeps no read lock on a connection of the pool.
  def test_a_connection_returned_with_unread_rows_is_closed
    pool = DB::Pool.new("sqlite://#{@path}", size: 1)
    pool.query("create table t (n int); insert into t values (1), (2), (3)")
    rows = nil
    first = pool.with { |db| (rows = db.each_row("select n from t", fetch: 1)).next && db }
    second = pool.with { |db| db }
    refute_same first, second
    assert_predicate first, :closed?
    assert_equal 0, pool.query("pragma wal_checkpoint(truncate)").first.first
    refute_nil rows
    pool.close
  end

  def test_a_database_in_memory_has_the_writer_alone
    pool = DB::SQLite::Pool.new("sqlite::memory:")
    pool.query("create table t (n int)")
    assert_equal 0, pool.query_value("select count(*) from t")
    pool.close
    assert_predicate pool, :closed?
    assert_raises(Heddle::PoolClosed) { pool.query("select 1") }
    assert_raises(ArgumentError) { DB::SQLite::Pool.new("sqlite::memory:", size: 3) }
  end

  # The pool may be the first constant of SQLite that a program uses.
  def test_loads_with_heddle_alone
    assert_equal "7\n", assert_child(<<~RUBY, gems: true)
      puts Heddle::DB::SQLite::Pool.new("sqlite::memory:").query_value("select 7")
    RUBY
  end

  def test_a_database_in_memory_outlives_an_idle_time
    pool = DB::SQLite::Pool.new("sqlite::memory:", idle: 0.001, max_lifetime: 0.001)
    pool.query("create table t (n int)")
    sleep 0.01
    2.times { assert_equal 0, pool.query_value("select count(*) from t") }
  ensure
    pool&.close
  end

  def test_addresses_of_other_databases_are_refused
    error = assert_raises(ArgumentError) { DB::SQLite::Pool.new("postgresql://127.0.0.1/shop") }
    assert_match(/sqlite:.*use Heddle::DB::Pool/, error.message)
  end

  private

  def with_pool(**options)
    pool = DB::SQLite::Pool.new("sqlite://#{@path}", **options)
    yield pool
  ensure
    pool&.close
  end
end
