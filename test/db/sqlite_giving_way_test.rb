# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"

# A statement of SQLite works in this process. Others run meanwhile, and it ends when it has to.
class SQLiteGivingWayTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  # Seconds of this thread's own CPU time: the machine may be busy with something else.
  MOST = 0.01
  SECONDS = Float(ENV.fetch("HEDDLE_STRESS_SECONDS", 2))
  private_constant :MOST, :SECONDS

  def test_a_long_statement_stops_no_other_task
    Heddle.run do
      with_db do |db|
        stop = false
        gaps = []
        others = Heddle.spawn do
          last = cpu
          until stop
            Heddle.spawn { nil }.value
            sleep(0.001)
            gaps << (now = cpu) - last
            last = now
          end
        end
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(SECONDS) { db.query(ENDLESS) } }
        stop = true
        others.value
        assert_operator gaps.size, :>, 20
        # One gap may have a garbage collection in it.
        assert_operator gaps.sort[-2], :<=, stretched(MOST), gaps.max(5).inspect
      end
    end
  end

  # What doc/limits.md says: one instruction cannot give way.
  def test_one_instruction_that_takes_long
    Heddle.run do
      with_db do |db|
        gaps = []
        stop = false
        others = Heddle.spawn do
          until stop
            before = cpu
            sleep(0)
            gaps << cpu - before
          end
        end
        sleep(0.001)
        assert_equal 100_000_000, db.query_value("select length(hex(zeroblob(50000000)))")
        stop = true
        others.value
        assert_operator gaps.max, :>, MOST
      end
    end
  end

  def test_a_long_statement_stops_no_other_thread
    with_db do |db|
      turns = 0
      stop = false
      other = Thread.new { (turns += 1) && sleep(0.001) until stop }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(SECONDS / 2) { db.query(ENDLESS) } }
      stop = true
      other.join
      assert_operator turns, :>, 10
    end
  end

  # Neither the task nor its loop ever waits.
  def test_long_statements_in_tasks_stop_no_other_thread
    thread = Thread.new do
      Heddle.run do
        Array.new(2) { Heddle.spawn { with_db { |db| db.query(ENDLESS) } } }.each(&:value)
      end
    end
    thread.report_on_exception = false
    assert_within(SECONDS * 2) { 10.times { sleep(0.001) } }
    thread.raise(IndexError, "interrupted")
    assert_raises(IndexError) { thread.value }
  end

  # Sorting, joins and writes let other tasks run, too.
  def test_concurrent_statements_return_the_right_results
    Heddle.run do
      with_db do |db|
        db.query("create table numbers (n int)")
        fill = "with recursive c (n) as (select 1 union all select n + 1 from c limit 200000) " \
          "insert into numbers select n * 7919 % 200003 from c"
        assert_equal 200_000, db.exec(fill)
        tasks = 4.times.map do |index|
          Heddle.spawn do
            with_db do |mine|
              mine.query_row("select count(*), min(n), max(n), sum(n) from " \
                "(select n from numbers where n % 4 = ? order by n desc)", index)
            end
          end
        end
        rows = tasks.map(&:value)
        all = (1..200_000).map { |n| n * 7919 % 200_003 }.group_by { |n| n % 4 }
        assert_equal (0..3).map { |index| [all[index].size, *all[index].minmax, all[index].sum] }, rows
      end
    end
  end

  def test_a_cancel_and_a_deadline_end_it_at_once
    Heddle.run do
      with_db do |db|
        assert_within(0.05 * 3, remeasure: 5) do
          task = Heddle.spawn { db.query(ENDLESS) }
          sleep(0.005)
          task.cancel
          assert task.wait(5)
          assert_equal :cancelled, task.status
        end
        assert_within(0.05 * 3, remeasure: 5) do
          assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.005) { db.query(ENDLESS) } }
        end
        assert_equal 7, db.query_value("select 7")
        assert_predicate db, :healthy?
      end
    end
  end

  def test_a_statement_ended_by_a_thread_kill_or_a_throw
    with_db do |db|
      thread = Thread.new { db.query(ENDLESS) }
      wait_until { !db.at_rest? }
      thread.kill
      assert thread.join(stretched(5))
      assert_equal 7, db.query_value("select 7")
      db.create_function("away") { throw :away, :gone }
      assert_equal(:gone, catch(:away) { db.query("select away() from (select 1 union select 2)") })
      assert_equal 7, db.query_value("select 7")
    end
  end

  # Another fiber cannot use the connection meanwhile; if it closes the connection, the statement ends.
  def test_use_and_close_by_another_fiber_during_a_statement
    Heddle.run do
      db = connect
      task = Heddle.spawn do
        db.query(ENDLESS)
      rescue Heddle::DB::ConnectionLost => error
        error
      end
      wait_until { !db.at_rest? }
      assert_raises(Heddle::DB::Busy) { db.query("select 1") }
      # Below the connection's own guard.
      native = db.driver.instance_variable_get(:@native)
      assert_raises(Heddle::DB::Busy) { native.prepare("select 1", 0) }
      db.close
      assert_includes task.value.message, "closed"
      assert_predicate db, :closed?
      assert_raises(IOError) { db.query("select 1") }
    end
  end

  # Statements and connections that the GC frees in the middle of another statement.
  def test_garbage_while_a_statement_runs
    Heddle.run do
      with_db do |db|
        task = Heddle.spawn { db.query_value(ENDLESS.sub("select n + 1 from c", "select n + 1 from c limit 3000000")) }
        20.times do
          Heddle::DB.connect("sqlite://#{@path}").query("select 1")
          GC.start
          sleep(0)
        end
        assert_equal 3_000_000, task.value
        statements = 50.times.map { |n| db.prepare("select #{n}") }
        db.each_row("select 1 union select 2 union select 3", fetch: 1) do
          statements.pop(20)
          GC.start
        end
        assert_equal 7, db.query_value("select 7")
      end
    end
  end

  # SQLite rolls the transaction back whose write was interrupted: what follows in the block must not be committed.
  def test_an_interrupted_write_ends_its_transaction
    with_db do |db|
      db.query("create table t (n int)")
      error = assert_raises(Heddle::DB::TransactionError) do
        db.transaction do
          db.exec("insert into t values (1)")
          assert_raises(Heddle::DeadlineExceeded) do
            Heddle.deadline(0.05) { db.exec(ENDLESS.sub("select count(*)", "insert into t select n")) }
          end
          db.exec("insert into t values (2)")
        end
      end
      assert_match(/interruption/, error.message)
      assert_equal 0, db.query_value("select count(*) from t")
      db.transaction do
        db.exec("insert into t values (3)")
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query(ENDLESS) } } # it only reads
      end
      assert_equal [3], db.query_column("select n from t")
    end
  end

  private

  def cpu = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
end
