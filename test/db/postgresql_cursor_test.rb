# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"

# each_row by portals and cursors, on a real PostgreSQL: with savepoints, errors, and ends of transactions in between.
module PostgreSQLCursorSuite
  include StreamHelpers
  include PostgreSQLHelpers

  SERIES = "select n from generate_series(1, 50) as n"
  CURSORS = "select count(*) from pg_cursors where name like 'heddle%'"

  def with_db
    server = postgresql
    in_host do
      db = Heddle::DB.connect(server.url, timeout: 20)
      yield db
    ensure
      db&.close
    end
  end

  def test_other_queries_between_rows
    with_db do |db|
      [-> { numbers(db) }, -> { db.transaction { numbers(db) } }].each { |run| assert_equal (1..50).to_a, run.call }
      assert_equal 0, db.query_value(CURSORS)
      before = db.driver.stream.statistics[:flushes]
      db.each_row(SERIES, fetch: 100) { nil }
      assert_equal 2, db.driver.stream.statistics[:flushes] - before # its Close waits for the next request
      db.query("select 1")
      assert_predicate db, :healthy?
    end
  end

  def numbers(db)
    found = []
    db.each_row(SERIES, fetch: 7) { |(n)| found << db.query_value("select ?", n) }
    found
  end

  def test_cursors_in_cursors
    with_db do |db|
      db.transaction do
        pairs = 0
        db.each_row(SERIES, fetch: 7) { db.each_row(SERIES, fetch: 3) { pairs += 1 } }
        assert_equal 2500, pairs
      end
    end
  end

  def test_savepoints_between_rows
    with_db do |db|
      db.exec("create temporary table c (n int)")
      db.transaction do
        db.each_row(SERIES, fetch: 7) do |(n)|
          catch(:undo) do
            db.transaction do
              db.exec("insert into c values (?)", n)
              throw :undo if n.odd?
            end
          end
        end
      end
      assert_equal 25, db.query_value("select count(*) from c")
    end
  end

  # The server ends portals that a savepoint's transaction has opened, when that is rolled back.
  def test_a_cursor_that_a_rollback_ends
    with_db do |db|
      db.transaction do
        rows = nil
        catch(:undo) do
          db.transaction do
            rows = db.each_row(SERIES, fetch: 7)
            7.times { rows.next }
            throw :undo
          end
        end
        error = assert_raises(Heddle::DB::ServerError) { db.transaction { 50.times { rows.next } } }
        assert_equal "34000", error.sql_state
        assert_equal 7, db.query_value("select 7")
      end
    end
  end

  def test_a_cursor_that_is_left_open_at_commit
    with_db do |db|
      rows = nil
      db.transaction do
        rows = db.each_row(SERIES, fetch: 7)
        rows.next
      end
      assert_equal 7, db.query_value("select 7")
      assert_raises(Heddle::DB::ServerError) { 50.times { rows.next } }
      assert_equal 7, db.query_value("select 7")
    end
  end

  # The server has no cursor beyond a transaction for them: their rows come at once.
  def test_selects_that_write_or_lock_rows
    with_db do |db|
      db.exec("create temporary table w (n int)")
      writing = "with x as (insert into w values (?), (2) returning n) select n from x"
      assert_equal [[1], [2]], db.each_row(writing, 1, fetch: 1).to_a
      assert_equal [[1], [2]], db.each_row("select n from w for update", fetch: 1).to_a
      error = assert_raises(Heddle::DB::ServerError) { db.each_row("select nope from w for update").to_a }
      assert_equal ["42703", 8], [error.sql_state, error.position]
      assert_predicate db, :healthy?
      db.transaction { assert_equal [[3], [2]], db.each_row(writing, 3, fetch: 1).to_a }
      assert_equal [1, 2, 2, 3], db.query_column("select n from w order by n")
    end
  end

  def test_an_error_in_the_middle
    with_db do |db|
      sql = "select 100 / (n - 20) from generate_series(1, 50) as n"
      seen = 0
      assert_raises(Heddle::DB::ServerError) { db.each_row(sql, fetch: 5) { seen += 1 } }
      db.transaction do
        assert_raises(Heddle::DB::ServerError) { db.transaction { db.each_row(sql, fetch: 5) { seen += 1 } } }
        assert_equal 7, db.query_value("select 7")
      end
      assert_operator seen, :>=, 15
    end
  end

  def test_a_block_that_leaves
    with_db do |db|
      assert_equal 3, db.each_row(SERIES, fetch: 2) { |(n)| break n if n == 3 }
      assert_raises(KeyError) { db.transaction { db.each_row(SERIES, fetch: 2) { raise KeyError } } }
      db.transaction do
        assert_equal 3, db.each_row(SERIES, fetch: 2) { |(n)| break n if n == 3 }
        assert_equal 0, db.query_value(CURSORS)
      end
      assert_equal 0, db.query_value(CURSORS)
    end
  end
end

BothModes.define("PostgreSQLCursor", PostgreSQLCursorSuite)
