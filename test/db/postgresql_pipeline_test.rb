# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"

# Several requests without an answer in between, and several statements in one text, on a real PostgreSQL.
module PostgreSQLPipelineSuite
  include StreamHelpers
  include PostgreSQLHelpers

  def with_db(url = postgresql.url, **options)
    in_host do
      db = Heddle::DB.connect(url, timeout: 30, **options)
      yield db
    ensure
      db&.close
    end
  end

  # A client that sends once waits for the network once: the server answers all that it got.
  def assert_one_round_trip(db)
    before = db.driver.stream.statistics
    result = yield
    after = db.driver.stream.statistics
    assert_equal 1, after[:flushes] - before[:flushes]
    result
  end

  # All requests leave in one round trip, and the server sees the last one before it has answered the first.
  def test_a_hundred_queries_take_one_round_trip
    with_db do |db|
      db.query("select ?::int", 0) # all types are known from here on
      [{limit: 100}, {atomic: true}].each do |options|
        futures = assert_one_round_trip(db) do
          db.pipeline(**options) { |p| Array.new(100) { |n| p.query("select ?::int", n) } }
        end
        assert_equal (0..99).to_a, futures.map { |future| future.value[0][0] }
      end
    end
  end

  def test_new_sql_with_values_takes_one_round_trip
    with_db do |db|
      db.query("select ?::int", 0)
      assert_equal [1, "b"], assert_one_round_trip(db) { db.query_row("select ?::int + 1, ?::text", 0, "b") }
    end
  end

  # Both sides' sockets are full. Without reading, both sides would wait for each other.
  def test_answers_are_read_while_large_requests_are_sent
    with_db do |db|
      big = "x" * 3_000_000
      futures = db.pipeline(limit: 20) { |p| Array.new(20) { p.query("select ?::text || 'y'", big) } }
      assert_equal [3_000_001], futures.map { |future| future.value[0][0].bytesize }.uniq
    end
  end

  def test_after_an_error_outside_a_transaction_the_rest_runs
    with_db do |db|
      futures = db.pipeline do |p|
        ["select 1", "select 1/0", "select 2", "selekt", "select 3"].map { |sql| p.query(sql) } <<
          p.query("select ?", Object.new) << p.query("select 4")
      end
      outcomes = futures.map do |future|
        future.value[0][0]
      rescue Heddle::DB::ServerError => error
        error.sql_state
      rescue TypeError => error
        error.class
      end
      assert_equal [1, "22012", 2, "42601", 3, TypeError, 4], outcomes
      assert_predicate db, :healthy?
    end
  end

  def test_after_an_error_in_a_transaction_nothing_runs
    with_db do |db|
      db.exec("create temporary table p (n int)")
      futures = nil
      assert_raises(Heddle::DB::TransactionError) do
        db.transaction do
          futures = db.pipeline do |p|
            ["insert into p values (1)", "select 1/0", "insert into p values (2)", "select 1"]
              .map { |sql| p.query(sql) }
          end
        end
      end
      assert_equal 1, futures[0].value.affected_rows
      assert_equal "22012", assert_raises(Heddle::DB::ServerError) { futures[1].value }.sql_state
      futures[2..].each do |future|
        assert_match(/not run.*division by zero/, assert_raises(Heddle::DB::TransactionError) { future.value }.message)
      end
      assert_equal 0, db.query_value("select count(*) from p")
    end
  end

  # After an error the server ignores messages until Sync, so the Close of a statement is sent first.
  def test_closes_are_sent_before_the_next_request
    with_db do |db|
      statements = Array.new(5) { |i| db.prepare("select #{i}, 'closes ride'") }
      before = db.driver.stream.statistics[:flushes]
      statements.each(&:close)
      assert_equal 5, db.driver.closes
      assert_raises(Heddle::DB::ServerError) { db.query("select 1/0") }
      assert_equal 0, db.driver.closes
      assert_equal 1, db.driver.stream.statistics[:flushes] - before
      left = "select count(*) from pg_prepared_statements where statement like '%closes' || ' ride%'"
      assert_equal 0, db.query_value(left)
      assert_predicate db, :healthy?
    end
  end

  # ---- several statements in one text

  def test_results_follow_one_another
    with_db do |db|
      first = db.query("create temporary table s (n int); insert into s values (1), (2); select n, 'x' as t from s; " \
        "select 1 where false;")
      results = [first]
      results << results.last.following while results.last.following
      assert_equal [[], [], [[1, "x"], [2, "x"]], []], results.map(&:rows)
      assert_equal [0, 2, 0, 0], results.map(&:affected_rows)
      assert_equal %w[n t], results[2].fields
      assert_equal [false, false, true, true], results.map(&:rows?)
    end
  end

  # They are one transaction of the server's.
  def test_an_error_undoes_the_others
    with_db do |db|
      db.exec("create temporary table s (n int)")
      error = assert_raises(Heddle::DB::ServerError) { db.query("insert into s values (1); select 1/0; select 2") }
      assert_equal "22012", error.sql_state
      assert_equal 0, db.query_value("select count(*) from s")
    end
  end

  def test_several_statements_and_transactions
    with_db do |db|
      db.exec("create temporary table s (n int)")
      db.transaction do
        assert_raises(Heddle::DB::TransactionError) { db.query("select 1; commit") }
        assert_raises(Heddle::DB::TransactionError) { db.query("insert into s values (1); rollback; select 1") }
        db.query("insert into s values (1); insert into s values (2)")
      end
      assert_equal 2, db.query_value("select count(*) from s")
      assert_raises(Heddle::DB::ServerError) { db.query("select ?; select ?", 1, 2) }
    end
  end

  # Their text says where it ends, which statements and parameters it has: as this session of the server reads it.
  def test_strings_with_backslashes
    with_db(parameters: {"standard_conforming_strings" => "off", "escape_string_warning" => "off"}) do |db|
      assert_equal [["it's ?", 1]], db.query("select 'it\\'s ?', ?::int", 1).rows
      assert_equal [["it's :name", 1]], db.query("select 'it\\'s :name', :name::int", name: 1).rows
      assert_equal [["'; commit; --"]], db.transaction { db.query("select '\\'; commit; --'").rows }
      assert_raises(Heddle::DB::TransactionError) { db.transaction { db.query("select '\\'', 1; commit; --'") } }
      error = assert_raises(Heddle::DB::ServerError) { db.query("select '\\'?', ?::int, nope", 1) }
      assert_equal "nope", error.sql[error.position - 1..]
      db.query("create temporary table c (t text)")
      assert_equal(1, db.copy_in("copy c from stdin (null '\\'', format csv, escape '\\\\')") { |copy| copy << [nil] })
      db.query("set standard_conforming_strings = on")
      assert_equal [["\\", 1]], db.query("select '\\', ?::int", 1).rows
    end
  end

  def test_empty_texts
    with_db do |db|
      ["", " ", ";", "-- nothing", "/* nothing */;;"].each do |sql|
        result = db.query(sql)
        assert_equal [[], false, 0, nil], [result.rows, result.rows?, result.affected_rows, result.following], sql
      end
      assert_equal 7, db.query_value("select 7;")
      assert_equal 7, db.query_value("select 7; -- behind it")
    end
  end
end

BothModes.define("PostgreSQLPipeline", PostgreSQLPipelineSuite)
