# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/postgresql_server"

# What other libraries build on: statements as text, batches of rows with their columns, values as the server's text.
class ForeignRowsTest < Minitest::Test
  include MariaDBHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  def each_database
    [mariadb, postgresql].each do |server|
      db = Heddle::DB.connect(server.url, timeout: 10)
      yield db
      db.close
    end
  end

  def test_statements_as_text
    each_database do |db|
      assert_equal [[1, "?"]], db.query_text("select 1, '?'").rows
      assert_raises(Heddle::DB::ServerError) { db.query_text("wrong") }
      db.query_text("begin")
      assert_predicate db, :in_transaction?
      db.query_text("rollback")
      db.transaction { assert_raises(Heddle::DB::TransactionError) { db.query_text("commit") } }
      heard = []
      listener = db.on_query { |event| heard << event.sql }
      db.query_text("select 2")
      listener.close
      assert_equal ["select 2"], heard
    end
  end

  def test_batches
    each_database do |db|
      db.query_text("create temporary table kept (id int, name varchar(9))")
      5.times { |n| db.exec("insert into kept values (?, ?)", n, "n") }
      [->(&work) { db.transaction(&work) }, ->(&work) { work.call }].each do |around|
        around.call do
          seen = []
          db.each_batch("select id, name from kept order by id", [], fetch: 2) do |rows, columns|
            assert_equal %w[id name], columns.names
            seen << rows.map(&:first)
            db.query_value("select 7") # the connection is free meanwhile
          end
          assert_equal [0, 1, 2, 3, 4], seen.flatten
          assert_operator seen.map(&:size).max, :<=, 2
          empty = []
          db.each_batch("select id from kept where id > ?", [9], fetch: 2) { |*batch| empty << batch }
          assert_equal [[[], ["id"]]], empty.map { |rows, columns| [rows, columns.names] }
        end
      end
      assert_equal 1, db.each_batch("select 1", [], fetch: 1) { |rows, _| break rows[0][0] }
      assert_equal 7, db.query_value("select 7")
    end
  end

  def test_only_virtual_statements_are_kept
    [mariadb, postgresql].each do |server|
      db = Heddle::DB.connect(server.url, timeout: 10, statement_cache: :virtual)
      db.transaction { 2.times { db.query("select 1") } }
      assert_equal 0, db.cached_statements
      statement = Heddle::DB.virtual_statement { "select 2" }
      2.times { assert_equal 2, db.query_value(statement) }
      assert_equal 1, db.cached_statements
      db.close
    end
  end

  def test_textual_values_of_postgresql
    db = Heddle::DB.connect(postgresql.url, timeout: 10)
    db.driver.textual = true
    expected = [["1", "t", "{1,2}", "[1,3)", "1.50", "\\x00ff", "2024-01-02", nil, "(1,a)"]]
    sql = "select 1, true, array[1,2], int4range(1,3), 1.50::numeric, '\\x00ff'::bytea, date '2024-01-02', null, " \
      "row(1,'a')"
    assert_equal expected, db.query(sql).rows
    assert_equal expected, db.query_text(sql).rows
    assert_equal [["t", "f"]], db.query("select '{\"a\":1}'::jsonb ? 'a', '{\"a\":1}'::jsonb ? $1", "b").rows
    db.exec("create type pg_temp.mood as enum ('glad', 'sad')")
    assert_equal [["glad", "{sad}"]], db.query("select 'glad'::pg_temp.mood, array['sad'::pg_temp.mood]").rows
    statement = db.prepare("select $1::pg_temp.mood")
    2.times { assert_equal [["sad"]], statement.query("sad").rows }
    assert_raises(ArgumentError) { db.query("select $1") }
    rows = []
    db.each_batch("select generate_series(1, 3)", [], fetch: 2) { |batch, _| rows.concat(batch) }
    assert_equal [["1"], ["2"], ["3"]], rows
    error = assert_raises(Heddle::DB::ServerError) { db.query("select '?', wrong") }
    assert_equal 13, error.position
  ensure
    db&.close
  end

  def test_found_rows_counts_unchanged_rows
    {false => 0, true => 1}.each do |found_rows, count|
      db = Heddle::DB.connect(mariadb.url, timeout: 10, found_rows: found_rows)
      db.query("create temporary table kept (id int)")
      db.exec("insert into kept values (1)")
      assert_equal count, db.exec("update kept set id = 1")
      db.close
    end
  end

  def test_the_zone_of_times_can_change
    db = Heddle::DB.connect(mariadb.url, timeout: 10)
    statement = db.prepare("select cast('2024-07-01 12:00:00' as datetime) from seq_1_to_100")
    [[false, Time.utc(2024, 7, 1, 12)], [true, Time.local(2024, 7, 1, 12)], [false, Time.utc(2024, 7, 1, 12)]]
      .each do |local, time|
        db.driver.local_times = local
        assert_equal [[time]] * 100, statement.query.rows
      end
    assert_predicate db.driver, :backslash_escapes?
    db.query_text("set sql_mode = 'NO_BACKSLASH_ESCAPES'")
    refute_predicate db.driver, :backslash_escapes?
  ensure
    db&.close
  end
end
