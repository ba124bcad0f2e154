# frozen_string_literal: true

require "test_helper"
require "shared/db"
require "support/both_modes"
require "support/stream_helpers"
require "support/sqlite_helpers"

# The suite of every database, on files of SQLite, in threads and in tasks.
module SQLiteSuite
  # What SQLite does otherwise, and why. SQLiteSuite::Own has what it does instead.
  OTHERWISE = {
    test_a_timeout_stops_the_query: "nothing is owed: the connection goes on",
    test_a_deadline_stops_the_query: "nothing is owed: the connection goes on",
    test_an_exception_raised_from_another_thread: "nothing is owed: the connection goes on",
    test_a_cancelled_query: "nothing is owed: the connection goes on",
    test_errors_are_reported: "it ends with a query on a connection that a deadline closed",
    test_a_statement_that_the_server_stops_at_its_time_limit: "there is no server, and no limit but timeout:",
    test_isolation_and_read_only: "it reads what others commit meanwhile: here transactions are serializable",
    test_deadlocks_are_retried: "there is one lock for all rows: nobody waits with a row of his own",
    test_a_victim_of_a_deadlock_runs_nothing_more: "there is one lock for all rows: nobody waits with a row of his own",
    test_idle_connections_that_the_server_ended_are_replaced: "there is no server",
    test_tables: "there is no information_schema"
  }.freeze

  # In place of those.
  module Own
    def test_a_timeout_stops_the_query_and_the_connection_goes_on
      with_connection(timeout: 0.3) do |db|
        [sleep_sql(20), SQLiteHelpers::ENDLESS].each do |sql|
          assert_within(1.5, at_least: 0.25) { assert_raises(Heddle::DeadlineExceeded) { db.query(sql) } }
          assert_predicate db, :healthy?
          assert_equal 1, db.query_value("select 1")
        end
        assert_equal 0, SQLiteHelpers::Sleeping.count
      end
    end

    def test_a_deadline_stops_the_query_and_the_connection_goes_on
      with_connection do |db|
        [sleep_sql(20), SQLiteHelpers::ENDLESS].each do |sql|
          assert_within(1.5, at_least: 0.25) do
            assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.3) { db.query(sql) } }
          end
          assert_equal 1, db.query_value("select 1")
        end
      end
    end

    def test_an_exception_raised_from_another_thread_stops_the_query
      with_connection do |db|
        thread = Thread.new { in_host { db.query(sleep_sql(20)) } }
        thread.report_on_exception = false
        wait_until { sleepers(nil).positive? }
        thread.raise(RuntimeError, "enough")
        assert_equal "enough", assert_raises(RuntimeError) { thread.value }.message
        assert_equal 1, db.query_value("select 1")
      end
    end

    def test_a_cancelled_query_stops
      in_run do
        db = connect
        [sleep_sql(20), SQLiteHelpers::ENDLESS].each do |sql|
          task = Heddle.spawn { db.query(sql) }
          wait_until { !db.at_rest? }
          task.cancel
          assert task.wait(5)
          assert_equal 1, db.query_value("select 1")
        end
        db.close
      end
    end

    def test_errors_are_reported_to_listeners
      with_connection do |db|
        errors = []
        events = heard(db) do
          errors << assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all") }
          errors << assert_raises(TypeError) { db.query("select ?", Object.new) }
          errors << assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query(sleep_sql(20)) } }
        end
        assert_equal errors, events.map(&:error)
        assert_operator events[2].seconds, :>=, 0.05
      end
    end

    def test_transactions_are_serializable
      with_numbers do |db, table|
        %i[read_uncommitted read_committed repeatable_read serializable].each_with_index do |isolation, index|
          db.transaction(isolation: isolation) { db.exec("insert into #{table} values (?)", index) }
        end
        db.transaction(read_only: true) do
          assert_equal 4, db.query_value("select count(*) from #{table}")
          in_another { |other| other.exec("insert into #{table} values (9)") }
          assert_equal 4, db.query_value("select count(*) from #{table}")
        end
        assert_equal 5, db.query_value("select count(*) from #{table}")
        assert_raises(Heddle::DB::ReadOnly) do
          db.transaction(read_only: true) { db.exec("insert into #{table} values (10)") }
        end
        db.exec("insert into #{table} values (10)") # it is the transaction that was read-only
        assert_raises(ArgumentError) { db.transaction(isolation: :chaos) { flunk } }
        assert_raises(ArgumentError) { db.transaction(deferrable: true) { flunk } }
        assert_equal 6, db.query_value("select count(*) from #{table}")
      end
    end

    # Statements that Heddle makes itself are closed, and not left to the GC, which does not know how large they are.
    def test_no_statement_is_left_open
      with_connection do |db|
        native = db.driver.instance_variable_get(:@native)
        open = -> { ObjectSpace.each_object(Heddle::DB::SQLite.const_get(:Prepared)).count { |one| native.owns?(one) } }
        assert_equal 0, open.call
        counts = Array.new(2) do
          3.times { db.transaction(read_only: true) { db.transaction { db.query("values (1)") } } }
          db.query("create table if not exists left_open (n int); select 1")
          assert_raises(ArgumentError) { db.prepare("select 1; select 2") }
          open.call
        end
        assert_equal counts.first, counts.last
      end
    end

    # Both read, one writes and commits: the other one's snapshot is out of date.
    def test_conflicts_of_deferred_transactions_are_retried
      with_counters do |db, table|
        runs = 0
        with_connection(transaction: :deferred) do |other|
          other.transaction(retry: 3) do
            runs += 1
            n = other.query_value("select n from #{table} where id = 1")
            db.exec("update #{table} set n = n + 10 where id = 1") if runs == 1
            other.exec("update #{table} set n = ? where id = 1", n + 1)
          end
        end
        assert_equal [2, 11], [runs, db.query_value("select n from #{table} where id = 1")]
      end
    end

    def test_a_transaction_that_lost_a_conflict_runs_nothing_more
      with_counters do |db, table|
        with_connection(transaction: :deferred) do |other|
          other.start_transaction
          other.query("select * from #{table}")
          db.exec("update #{table} set n = 5")
          error = assert_raises(Heddle::DB::SerializationFailure) { other.exec("update #{table} set n = 6") }
          assert_predicate error, :retryable?
          assert_raises(Heddle::DB::TransactionError) { other.query("select 1") }
          assert_raises(Heddle::DB::TransactionError) { other.commit }
          other.rollback
          assert_equal [5, 5], other.query_column("select n from #{table}")
        end
      end
    end

    def test_tables_of_attached_databases
      with_table("id int") do |db, table|
        db.query("create view view_of as select * from #{table}")
        db.query("create temp table hidden (id int)")
        assert_equal [table, "view_of"].sort, db.list_tables
        assert db.table_exists?(table.to_sym)
        refute db.table_exists?("#{table}' or '1' = '1")
        db.query("attach ? as other", File.join(@folder, "other.db"))
        db.query("create table other.there (id int)")
        assert_equal ["there"], db.list_tables(schema: "other")
        assert db.table_exists?("there", schema: "other")
        refute db.table_exists?("there")
        assert_equal [], db.list_tables(schema: "nowhere_at_all")
        with_pool(size: 2) { |pool| assert_includes pool.list_tables, table }
        db.query("drop view view_of")
      end
    end
  end
end

BothModes.define("SQLite", StreamHelpers, SQLiteHelpers, *DatabaseSuite::ALL) do
  SQLiteSuite::OTHERWISE.each_key { |name| undef_method(name) } # raises for a name that the suite no longer has
  include SQLiteSuite::Own

  def series(count)
    "with recursive c (n) as (select 1 union all select n + 1 from c limit #{count}) select n from c"
  end

  def sleep_sql(seconds) = "select sleep(#{seconds})"

  def sleepers(_db) = SQLiteHelpers::Sleeping.count

  def a_comment_without_a_space = ["select 5--?", 5]

  def mistyped = [Object.new, Class, [1, 2]]

  def unbindable = ["\xff", Float::NAN, 1 << 63, -(1 << 63) - 1, Time.at(1 << 50), Date.new(12_000, 1, 1)]

  def forgetting_sql = "create table if not exists forgetting (id int)"

  def database_type = :sqlite

  # A pragma of the connection: how to set it, how to read it, what that returns, what there is without it.
  def session_setting
    ["pragma reverse_unordered_selects = 1", "pragma reverse_unordered_selects", 1, 0]
  end

  def lock_timeout_sql = "pragma busy_timeout = 1000"

  def committing
    ["commit", "rollback", "begin", "begin immediate", "end", "rollback transaction", "/* x */ COMMIT",
      "select 1; commit", "-- x\n;end transaction", "select 1; /* x */ commit", "select 1; /* x */ end; select 2"]
  end
end
