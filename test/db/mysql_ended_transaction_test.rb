# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"
require "support/scripted_mysql"

# The server rolls a transaction back with an error, and statements that are sent after that would be committed on
# their own.
class MySQLEndedTransactionTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  def connect(**options)
    Heddle::DB.connect(mariadb.url, timeout: 8, **options)
  end

  def setup
    @db = connect
    @db.exec("create or replace table counters (id int primary key, n int) engine=innodb")
    @db.exec("create or replace table log (line varchar(50)) engine=innodb")
    @db.exec("insert into counters select seq, 0 from seq_1_to_100")
  end

  def teardown
    @db.close
  end

  # Another transaction has changed much, and waits for the row that this one has changed: with its next step this one
  # becomes the victim.
  def with_a_deadlock_ahead
    other = connect
    @db.exec("update counters set n = 1 where id = 1")
    other.exec("begin")
    other.exec("update counters set n = 2 where id between 2 and 100")
    waiter = Thread.new { other.exec("update counters set n = 3 where id = 1") }
    watcher = connect
    wait_for_a_lock(watcher)
    yield
  ensure
    watcher&.close
    waiter&.join(10)
    other&.close
  end

  # Not by innodb_trx, which shows nothing new to clients that ask more often than ten times a second.
  def wait_for_a_lock(watcher)
    wait_until(what: "the wait for a lock") do
      watcher.query_row("show global status like 'Innodb_row_lock_current_waits'")[1] == "1"
    end
  end

  def fall_with(pipeline)
    [pipeline.query("update counters set n = 9 where id = 2"),
      pipeline.query("insert into log values (?)", "by itself"),
      pipeline.query("select count(*) from log")]
  end

  def lines = connect.then { |other| other.query_value("select count(*) from log").tap { other.close } }

  def assert_stopped(futures)
    error = assert_raises(Heddle::DB::ServerError) { futures[0].value }
    assert_predicate error, :retryable?
    futures[1..].each do |future|
      stopped = assert_raises(Heddle::DB::TransactionError) { future.value }
      assert_match(/was not sent: the server ended the transaction/, stopped.message)
    end
  end

  def test_a_pipeline_in_a_transaction
    error = assert_raises(Heddle::DB::TransactionError) do
      @db.transaction do
        with_a_deadlock_ahead do
          assert_stopped(@db.pipeline { |pipeline| fall_with(pipeline) })
          refute_predicate @db, :in_transaction?
          assert_raises(Heddle::DB::TransactionError) { @db.exec("insert into log values ('later')") }
        end
      end
    end
    assert_match(/this transaction failed and must be rolled back/, error.message)
    assert_equal 0, lines
    assert_predicate @db, :healthy?
  end

  # Nobody reads what the pipeline's statements have become, or only that of a statement which was not sent.
  def test_a_conflict_that_nobody_reads_runs_the_transaction_again
    reads = [->(_) {}, ->(futures) { futures.last.value }, ->(futures) { futures.each(&:value) }]
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].product(reads) do |host, read|
      host.call do
        @db.exec("update counters set n = 0")
        @db.exec("delete from log")
        runs = 0
        @db.transaction(retry: 1) do
          run = -> { read.call(@db.pipeline { |pipeline| fall_with(pipeline) }) }
          ((runs += 1) == 1) ? with_a_deadlock_ahead(&run) : run.call
        end
        assert_equal [2, 9, ["by itself"]],
          [runs, @db.query_value("select n from counters where id = 2"), @db.query_column("select line from log")]
      end
    end
  end

  def test_a_conflict_that_nobody_reads_does_not_run_it_for_ever
    runs = 0
    error = assert_raises(Heddle::DB::TransactionError) do
      @db.transaction(retry: 1) do
        runs += 1
        with_a_deadlock_ahead { @db.pipeline { |pipeline| fall_with(pipeline) } }
      end
    end
    assert_equal [2, Heddle::DB::DeadlockDetected], [runs, error.cause.class]
    # The caller's own errors are not conflicts, nor are those of a later transaction.
    runs = 0
    [RuntimeError, Heddle::DB::TransactionError].each do |error_class|
      assert_raises(error_class) do
        @db.transaction(retry: 3) do
          runs += 1
          raise error_class, "mine"
        end
      end
    end
    assert_equal 2, runs
  end

  def test_a_pipeline_in_a_savepoint
    assert_raises(Heddle::DB::TransactionError) do
      @db.transaction do
        @db.transaction do
          with_a_deadlock_ahead { assert_stopped(@db.pipeline(limit: 2) { |pipeline| fall_with(pipeline) }) }
        end
      end
    end
    assert_equal 0, lines
  end

  def test_a_pipeline_in_a_transaction_that_a_statement_began
    @db.exec("begin")
    with_a_deadlock_ahead { assert_stopped(@db.pipeline { |pipeline| fall_with(pipeline) }) }
    assert_equal 0, lines
  end

  def test_a_pipeline_that_begins_a_transaction
    other = connect
    other.exec("begin")
    other.exec("update counters set n = 2 where id between 2 and 100")
    # The wait of the other can begin only once this one has its row.
    waiter = Thread.new do
      watcher = connect
      wait_for_a_lock(watcher)
      watcher.close
      other.exec("update counters set n = 3 where id = 1")
    end
    futures = @db.pipeline do |pipeline|
      [pipeline.query("begin"), pipeline.query("update counters set n = 9 where id = 1"), *fall_with(pipeline)]
    end
    futures[0..1].each(&:value)
    assert_stopped(futures[2..])
    assert_equal 0, lines
  ensure
    waiter&.join(10)
    other&.close
  end

  # Error 1020, which has been on no list of errors that end transactions.
  def test_a_row_that_has_changed_since_the_snapshot
    @db.exec("set innodb_snapshot_isolation = 1")
    @db.start_transaction
    @db.query("select * from counters")
    connect.then { |other| other.exec("update counters set n = 7 where id = 5") && other.close }
    futures = @db.pipeline { |p|
      [p.query("update counters set n = 8 where id = 5"), p.query("insert into log values ('by itself')")]
    }
    assert_equal 1020, assert_raises(Heddle::DB::ServerError) { futures[0].value }.code
    ended = !@db.in_transaction?
    assert_raises(Heddle::DB::TransactionError) { futures[1].value } if ended
    @db.rollback
    assert_equal 0, lines
  rescue Heddle::DB::ServerError => error
    raise unless error.code == 1193

    skip "this MariaDB has no innodb_snapshot_isolation"
  end

  # An error that leaves the transaction open stops nothing.
  def test_a_pipeline_continues_after_an_error_that_does_not_end_the_transaction
    @db.transaction do
      futures = @db.pipeline do |p|
        [p.query("insert into counters values (1, 1)"), p.query("insert into log values ('after it')"),
          p.query("select ?"), p.query("select count(*) from log")]
      end
      assert_equal 1062, assert_raises(Heddle::DB::ServerError) { futures[0].value }.code
      assert_equal 1, futures[1].value.affected_rows
      assert_raises(ArgumentError) { futures[2].value }
      assert_equal [[1]], futures[3].value.rows
      assert_predicate @db, :in_transaction?
    end
    assert_equal 1, lines
  end

  S = ScriptedMySQL

  # 1206, the table of locks is full: the server has rolled back, and says so when it is asked.
  def test_the_transactions_state_is_checked_after_any_error
    server = S.new do |peer|
      peer.welcome
      assert_equal "\x03START TRANSACTION", peer.request
      peer.raw(S.packets(1, S.ok(status: 3)))
      assert_equal "\x16insert into t values (1)", peer.request
      peer.raw(S.packets(1, S.prepared(0)))
      peer.request
      peer.error(1, 1206, "HY000", "The total number of locks exceeds the lock table size")
      assert_equal "\x0e", peer.request
      peer.ok
      loop { flunk "asked for #{peer.request.inspect}" }
    end
    db = Heddle::DB.connect(server.url, timeout: 5)
    error = assert_raises(Heddle::DB::ServerError) do
      db.transaction { db.exec("insert into t values (1)") }
    end
    assert_equal 1206, error.code
    refute_predicate db, :in_transaction?
    db.start_transaction
  rescue Heddle::DB::ConnectionLost, Heddle::DeadlineExceeded
    assert_equal 1, server.errors.size, "START TRANSACTION was asked for, and no ROLLBACK before it"
    assert_match(/START TRANSACTION/, server.errors.pop.message)
  ensure
    server&.close
  end
end
