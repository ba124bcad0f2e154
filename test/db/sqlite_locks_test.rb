# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"

# A database that somebody else has locked: who waits, for how long, and in which order.
class SQLiteLocksTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  def setup
    super
    with_db { |db| db.query("create table t (n int)") }
  end

  # A task that waits for a lock lets the task go on that holds it.
  def test_a_wait_for_a_lock_of_another_task
    Heddle.run do
      holder, waiter = connect, connect
      order = []
      holder.start_transaction
      task = Heddle.spawn do
        waiter.exec("insert into t values (1)")
        order << :waiter
      end
      5.times { sleep(0.002) }
      order << :holder
      holder.commit
      task.value
      assert_equal %i[holder waiter], order
    ensure
      [holder, waiter].each { |db| db&.close }
    end
  end

  def test_the_lock_goes_to_those_who_wait_in_turn
    Heddle.run do
      order = []
      first = connect
      first.start_transaction
      tasks = 6.times.map do |n|
        Heddle.spawn do
          with_db do |db|
            2.times { |round| db.transaction { order << [round, n] && sleep(0.002) } }
          end
        end.tap { sleep(0.005) }
      end
      first.commit
      first.close
      tasks.each(&:value)
      assert_equal [0, 1].product((0..5).to_a), order
    end
  end

  # Also for statements outside of transactions, and in threads.
  def test_many_writers_at_once
    writers = 8.times.map do |n|
      Thread.new { with_db { |db| 25.times { db.exec("insert into t values (?)", n) } } }
    end
    writers.each(&:join)
    with_db { |db| assert_equal [[25]] * 8, db.query("select count(*) from t group by n").rows }
  end

  def test_a_deadline_and_a_cancel_end_the_wait
    Heddle.run do
      with_db do |holder|
        holder.start_transaction
        with_db do |db|
          assert_within(1, at_least: 0.09) do
            assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.exec("insert into t values (1)") } }
          end
          task = Heddle.spawn { db.transaction { flunk } }
          wait_until { !db.at_rest? }
          task.cancel
          assert task.wait(5)
          assert_equal 0, db.query_value("select count(*) from t")
          holder.commit
          assert_equal 1, db.exec("insert into t values (1)")
        end
      end
    end
  end

  def test_the_error_names_the_holder_in_this_process
    with_db do |holder|
      holder.start_transaction
      with_db(busy_timeout: 0.05) do |db|
        error = assert_raises(Heddle::DB::LockTimeout) { db.exec("insert into t values (1)") }
        assert_match(/locked.*#{Regexp.escape(@path)}: held by a transaction of this process/, error.message)
        assert_predicate error, :retryable?
      end
    end
  end

  def test_the_error_names_the_process
    skip "the system has no /proc/locks" unless File.readable?("/proc/locks")
    in_another_process(<<~RUBY) do |pid|
      db.start_transaction
      puts "locked"
      $stdin.read
    RUBY
      with_db(busy_timeout: 0.2) do |db|
        error = assert_raises(Heddle::DB::LockTimeout) { db.exec("insert into t values (1)") }
        assert_match(/held by process #{pid} \(ruby/, error.message)
        assert_equal 0, db.query_value("select count(*) from t") # readers wait for nobody
      end
    end
  end

  # Programs open many files, one after another.
  def test_a_closed_database_leaves_no_line_behind
    with_db do |db|
      with_db { |other| assert_same(*[db, other].map { |one| one.driver.instance_variable_get(:@line) }) }
    end
    wait_until(what: "the collection of lines") do
      30.times { Heddle::DB.connect("sqlite://#{@folder}/#{@files = @files.to_i + 1}.db").close }
      GC.start
      lines = Heddle::DB::SQLite.const_get(:Line).instance_variable_get(:@lines)
      @files > 150 && lines.keys.size < 40 && lines.size < 120
    end
  end

  # Numbers of inodes are each file system's own.
  def test_a_holder_of_another_file_with_the_same_number_is_not_named
    skip "the system has no /proc/locks" unless File.readable?("/proc/locks")
    holders = Heddle::DB::SQLite.const_get(:Holders)
    in_another_process("db.start_transaction\nputs 'locked'\n$stdin.read") do |pid|
      assert_match(/process #{pid} /, holders.of(@path))
      locks = "#{@folder}/locks"
      File.write(locks, File.read("/proc/locks").gsub(/ \h+:\h+:(\d+) /, ' ff:ff:\\1 '))
      assert_nil holders.of(@path, locks)
    end
  end

  # SQLite's own handler would sleep in the middle of the statement, and stop all tasks.
  def test_the_pragma_busy_timeout_waits_in_the_scheduler
    Heddle.run do
      with_db do |holder|
        holder.start_transaction
        with_db do |db|
          db.query("pragma busy_timeout = 200")
          turns = 0
          stop = false
          other = Heddle.spawn { (turns += 1) && sleep(0.001) until stop }
          assert_within(2, at_least: 0.15) do
            assert_raises(Heddle::DB::LockTimeout) { db.exec("insert into t values (1)") }
          end
          stop = true
          other.value
          assert_operator turns, :>, 10
        end
      end
    end
  end

  # A statement that was read to its end holds no lock: a checkpoint gets through.
  # Without a write-ahead log a commit waits for readers.
  def test_rows_of_a_statement_that_writes_are_committed_before_they_are_read
    with_db(journal_mode: :delete, busy_timeout: 0.1) do |writer|
      with_db(journal_mode: :delete) do |reader|
        reader.exec("insert into t values (1), (2), (3)")
        rows = reader.each_row("select n from t", fetch: 1)
        rows.next
        insert = -> { writer.each_row("insert into t values (4), (5) returning n", fetch: 1).first }
        assert_raises(Heddle::DB::LockTimeout) { insert.call }
        struck = Thread.new do
          Thread.current.report_on_exception = false
          writer.driver.instance_variable_get(:@turn).seconds = 20
          insert.call
        end
        wait_until(what: "the wait for the lock") { struck.stop? }
        struck.raise("struck")
        assert_equal "struck", assert_raises(RuntimeError) { struck.value }.message
        rows.size
        reader.close
        assert_equal [4], insert.call
        assert_equal [1, 2, 3, 4, 5], writer.query_list("select n from t")
      end
    end
  end

  def test_no_statement_holds_up_a_checkpoint
    with_db do |reader|
      statement = reader.prepare("select * from t")
      with_db do |writer|
        20.times { |n| writer.exec("insert into t values (?)", n) }
        assert_equal 20, statement.query.size
        assert_equal [1], reader.each_row("select 1 union all select n from t", fetch: 1).first
        assert_equal 0, writer.query_row("pragma wal_checkpoint(truncate)").first
      end
    end
  end

  private

  def with_db(**options)
    db = connect(**options)
    yield db
  ensure
    db&.close
  end

  # Runs Ruby code with `db` in a process of its own, until the block ends; the code's first line must have come.
  def in_another_process(code)
    program = "require 'heddle/db'; $stdout.sync = true\n" \
      "db = Heddle::DB.connect(#{"sqlite://#{@path}".inspect})\n#{code}"
    IO.popen([RbConfig.ruby, "-I#{File.expand_path("../../lib", __dir__)}", "-e", program], "r+") do |io|
      assert io.wait_readable(20) && io.gets, "the other process did not begin"
      yield io.pid
      io.close_write
    end
  end
end
