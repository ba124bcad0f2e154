# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

# Transactions as only PostgreSQL has them; the others are in test/shared/db/transactions.rb.
class PostgreSQLTransactionsTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  S = ScriptedPostgreSQL

  def connected(**options)
    db = DB.connect(postgresql.url, timeout: 20, **options)
    yield db
  ensure
    db&.close
  end

  # ---- a commit that was none

  # The server's answer to the COMMIT of a transaction that has failed is no error.
  def test_a_commit_that_the_server_answers_with_a_rollback
    connected do |db|
      ["commit", "END", "/* x */ commit and no chain", "prepare transaction 'heddle'", "commit;"].each do |commit|
        db.query("begin")
        assert_raises(DB::ServerError) { db.query("select 1 / 0") }
        error = assert_raises(DB::TransactionError, commit) { db.query(commit) }
        assert_match(/rolled the transaction back/, error.message)
        refute_predicate db, :in_transaction?
        assert_predicate db, :healthy?
      end
      db.query("begin")
      db.query("rollback")
      db.query("begin")
      db.query("commit")
    end
  end

  def test_other_ways_to_commit_that_the_server_answers_with_a_rollback
    connected do |db|
      statement = db.prepare("commit")
      [-> { db.query_text("commit") }, -> { statement.query }].each do |commit|
        db.query("begin")
        assert_raises(DB::ServerError) { db.query("select nope") }
        assert_match(/rolled the transaction back/, assert_raises(DB::TransactionError, &commit).message)
        refute_predicate db, :in_transaction?
        db.query("begin")
        commit.call
      end
      assert_equal 1, db.query_value("select 1")
    end
  end

  def test_a_commit_in_a_pipeline_that_the_server_answers_with_a_rollback
    connected do |db|
      futures = db.pipeline { |p| ["begin", "select 1 / 0", "commit", "select 7"].map { |sql| p.query(sql) } }
      assert_equal "22012", assert_raises(DB::ServerError) { futures[1].value }.sql_state
      assert_match(/rolled.*back/, assert_raises(DB::TransactionError) { futures[2].value }.message)
      assert_equal 7, futures[3].value[0][0]
    end
  end

  # Nobody reads what the statement has become.
  def test_a_conflict_in_a_pipeline_runs_the_transaction_again
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |host|
      host.call do
        connected do |db|
          db.query("create temporary table runs (n int)")
          runs = 0
          db.transaction(retry: 1) do
            db.pipeline do |p|
              p.query("insert into runs values (1)")
              p.query("do $$ begin raise sqlstate '40001'; end $$") if (runs += 1) == 1
            end
          end
          assert_equal [2, 1], [runs, db.query_value("select count(*) from runs")]
        end
      end
    end
  end

  # A server, or a pooler, whose state said nothing of a failure.
  def test_a_rollback_that_the_state_before_did_not_announce
    play = proc do |peer|
      peer.welcome
      {"BEGIN" => "T", "ROLLBACK" => "I"}.each do |tag, state|
        peer.request
        peer.raw(S.message("C", "#{tag}\0") + S.ready(state))
      end
      peer.read
    end
    S.play(play) do |server|
      db = DB.connect(server.url, timeout: 20)
      assert_match(/rolled.*back/, assert_raises(DB::TransactionError) { db.transaction {} }.message)
      refute_predicate db, :closed?
      assert_equal 0, db.transaction_depth
      db.close
    end
  end

  # ---- conflicts

  def with_numbers
    connected do |db|
      db.exec("create table serial_numbers (n int)")
      yield db
    ensure
      db.exec("drop table if exists serial_numbers")
    end
  end

  # Each reads what the other writes: the server lets one of them commit, and finds that out at a statement or at the
  # commit of the other.
  def test_serialization_failures_are_retried
    with_numbers do |db|
      [false, true].each do |at_commit|
        db.exec("truncate serial_numbers")
        runs = 0
        value = db.transaction(isolation: :serializable, retry: 3) do
          count = db.query_value("select count(*) from serial_numbers")
          conflict(at_commit) { db.exec("insert into serial_numbers values (?)", count) } if (runs += 1) == 1
          db.exec("insert into serial_numbers values (?)", count) if runs > 1
          count
        end
        assert_equal [2, 1, [0, 1]], [runs, value, db.query_column("select n from serial_numbers order by n")]
      end
    end
  end

  # Another transaction reads, writes and commits: before this one writes, or between that and its commit.
  def conflict(at_commit)
    connected do |other|
      other.transaction(isolation: :serializable) do
        count = other.query_value("select count(*) from serial_numbers")
        yield if at_commit
        other.exec("insert into serial_numbers values (?)", count)
      end
      yield unless at_commit
    end
  end

  def test_a_serialization_failure_without_retry
    with_numbers do |db|
      error = assert_raises(DB::SerializationFailure) do
        db.transaction(isolation: :serializable) do
          db.query_value("select count(*) from serial_numbers")
          conflict(true) { db.exec("insert into serial_numbers values (0)") }
        end
      end
      assert_equal ["40001", true], [error.sql_state, error.retryable?]
      assert_equal [0, false], [db.transaction_depth, db.in_transaction?]
    end
  end

  # ---- kinds of transactions

  def test_deferrable
    connected do |db|
      shown = %w[transaction_isolation transaction_read_only transaction_deferrable]
      ask = "select #{shown.map { |name| "current_setting('#{name}')" }.join(", ")}"
      db.transaction(isolation: :serializable, read_only: true, deferrable: true) do
        assert_equal %w[serializable on on], db.query_row(ask)
        assert_raises(ArgumentError) { db.transaction(deferrable: true) { flunk } }
      end
      db.transaction { assert_equal ["read committed", "off", "off"], db.query_row(ask) }
    end
  end

  # A transaction that has failed refuses with its first error, not with the server's 25P02.
  def test_the_first_error_is_the_cause
    connected do |db|
      error = assert_raises(DB::TransactionError) do
        db.transaction do
          assert_raises(DB::ServerError) { db.query("select 1 / 0") }
          assert_raises(DB::TransactionError) { db.query("select nope") }
          db.query("select 1")
        end
      end
      assert_equal "22012", error.cause.sql_state
      assert_match(/division by zero/, error.message)
    end
  end
end
