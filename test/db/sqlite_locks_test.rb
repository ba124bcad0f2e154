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

  def test_waiters_get_the_lock_in_turn
    Heddle.run do
      order = []
      first = connect
      first.start_transaction
      waiting = first.driver.instance_variable_get(:@queue).waiting
      tasks = 6.times.map do |n|
        task = Heddle.spawn do
          with_db do |db|
            2.times { |round| db.transaction { order << [round, n] && sleep(0.002) } }
          end
        end
        wait_until { waiting.size == n + 1 }
        task
      end
      first.commit
      first.close
      tasks.each(&:value)
      assert_equal [0, 1].product((0..5).to_a), order
    end
  end

  def test_a_connection_opens_and_reads_while_others_wait_for_the_lock
    Heddle.run do
      holder = connect
      holder.start_transaction
      waiting = holder.driver.instance_variable_get(:@queue).waiting
      waiter = Heddle.spawn { with_db { |db| db.exec("insert into t values (1)") } }
      wait_until { waiting.size == 1 }
      with_db { |db| assert_equal [[0]], db.query("select count(*) from t").rows }
      with_db(read_only: true) { |db| assert_equal [[0]], db.query("select count(*) from t").rows }
      pool = Heddle::DB::SQLite::Pool.new("sqlite:#{@path}", timeout: 5)
      assert_equal 0, pool.query_value("select count(*) from t")
      pool.close
      assert_equal 1, waiting.size
      holder.rollback
      holder.close
      waiter.value
    end
  end

  # What only SQLite knows to be one that reads.
  def test_statements_that_want_no_lock_stand_in_no_queue
    Heddle.run do
      holder, db = connect, connect(busy_timeout: 3)
      holder.start_transaction
      waiting = holder.driver.instance_variable_get(:@queue).waiting
      waiter = Heddle.spawn { with_db { |other| other.exec("insert into t values (1)") } }
      wait_until { waiting.size == 1 }
      ["with x as (select count(*) as n from t) select n from x", "/* ; */ values (0)", "select 0; select 0", "begin",
        "select count(*) from t", "rollback", "savepoint x", "release x", "pragma cache_size = 200",
        "pragma user_version", "pragma table_info(t)", "; -- nothing"].each do |sql|
        assert_equal [nil, 0], [nil, db.query(sql).first&.first.to_i], sql
      end
      assert_raises(ArgumentError) { db.query("with x as (select 1) select ? from x") }
      assert_raises(Heddle::DB::ServerError) { db.query("with x as (select 1) select nothing from x") }
      assert_equal [1, true], [waiting.size, db.at_rest?]
      holder.rollback
      waiter.value
    ensure
      [holder, db].each { |each| each&.close }
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

  # SQLite does not tell who has the lock: a process, or a transaction that no method of ours began.
  def test_the_error_of_a_lock_of_another_process
    in_another_process(<<~RUBY) do
      db.start_transaction
      puts "locked"
      $stdin.read
    RUBY
      with_db(busy_timeout: 0.2) do |db|
        error = assert_raises(Heddle::DB::LockTimeout) { db.exec("insert into t values (1)") }
        assert_match(/held by another connection/, error.message)
        assert_equal 0, db.query_value("select count(*) from t") # readers wait for nobody
      end
    end
  end

  # If the record stayed, later errors would name a transaction that has long ended.
  def test_a_close_while_the_lock_holder_is_recorded
    [-> {}, -> { raise "interrupted" }].each do |interrupt|
      with_db do |db|
        line = queue_of(db)
        line.define_singleton_method(:writer=) do |writer|
          db.driver.close if writer
          super(writer)
          interrupt.call if writer
        end
        assert_raises(RuntimeError, IOError) { db.transaction { db.query("select 1") } }
        assert_nil line.writer
      ensure
        line&.singleton_class&.remove_method(:writer=)
      end
    end
  end

  # No other connection holds these locks: to run the statement again does not help.
  def test_statements_refused_while_rows_of_the_same_connection_are_read
    with_db do |db|
      db.exec("insert into t values (1), (2)")
      db.create_function("same") { |n| n }
      rows = db.each_row("select same(n) from t", fetch: 1)
      rows.next
      [-> { db.query("drop table t") }, -> { db.create_function("same") { |n| n } }].each do |refused|
        error = assert_raises(Heddle::DB::ServerError, &refused)
        assert_equal [Heddle::DB::ServerError, "55006", false], [error.class, error.sql_state, error.retryable?]
        refute_match(/held by/, error.message)
        assert_match(/rows of this connection/, error.explanation)
      end
      assert_equal [[2]], [rows.next]
      assert_raises(StopIteration) { rows.next }
      db.create_function("same") { |n| n }
    end
  end

  # Rows that are being fetched belong to one snapshot.
  def test_a_write_while_older_rows_are_being_read
    with_db do |db|
      db.exec("insert into t values (1), (2)")
      rows = db.each_row("select n from t", fetch: 1)
      rows.next
      with_db { |other| other.exec("insert into t values (3)") }
      error = assert_raises(Heddle::DB::SerializationFailure) { db.exec("insert into t values (4)") }
      assert_match(/has written since.*rows that are still being fetched/, error.explanation)
      assert_raises(StopIteration) { 2.times { rows.next } }
      assert_equal 1, db.exec("insert into t values (4)")
    end
  end

  # Other calls wait, too. A waiter that stayed in the line would hold up the others until their time is over.
  def test_every_call_that_waited_for_the_lock_leaves_the_line
    copy = "#{@folder}/copy.db"
    ways = {
      prepare: ->(db) { db.prepare("select * from t") },
      rows: ->(db) { db.each_row("select * from t", fetch: 1).next },
      texts: ->(db) { db.query("select 1; select * from t") },
      transaction: ->(db) { db.transaction { db.query("select * from t") } },
      pipeline: ->(db) { db.pipeline { |p| p.query("select * from t") }.value },
      backup: ->(db) { db.backup(copy) { assert_empty queue_of(db).waiting } }
    }
    ways.each do |name, way|
      [1, 20].each do |seconds|
        with_db(journal_mode: :delete, transaction: :exclusive, busy_timeout: 20) do |holder|
          with_db(journal_mode: :delete, busy_timeout: seconds * 0.1) do |db|
            holder.exec("insert into t values (1)")
            assert_leaves_the_line(name, holder, db, way, interrupted: seconds == 20)
          end
        end
      end
    end
  end

  # A program that opens many files, one after another, must not collect queues.
  def test_the_queue_of_a_closed_database_is_forgotten
    with_db do |db|
      with_db { |other| assert_same(*[db, other].map { |one| one.driver.instance_variable_get(:@queue) }) }
    end
    wait_until(what: "the collection of queues") do
      30.times { Heddle::DB.connect("sqlite://#{@folder}/#{@files = @files.to_i + 1}.db").close }
      GC.start
      queues = Heddle::DB::SQLite.const_get(:WaitQueue).instance_variable_get(:@queues)
      @files > 150 && queues.keys.size < 40 && queues.size < 120
    end
  end

  # How a program may run the pragma that puts a handler of SQLite's own in place of ours.
  BUSY_TIMEOUTS = {
    "a query" => ->(db) { db.query("pragma busy_timeout = 200") },
    "a command" => ->(db) { db.exec("PRAGMA busy_timeout(200)") },
    "a prepared statement" => ->(db) { db.prepare("pragma busy_timeout = 200").query },
    "rows" => ->(db) { db.each_row("pragma busy_timeout = 200") { |_| nil } },
    "a pipeline" => lambda do |db|
      db.pipeline { |p| ["pragma busy_timeout = 200", "select 1"].each { |sql| p.query(sql) } }
    end,
    "several statements" => ->(db) { db.query("select 1; pragma busy_timeout = 200; select 2") },
    "a name in quotes" => ->(db) { db.query('pragma "busy_timeout" = 200') },
    "comments" => ->(db) { db.query("/* - */ pragma /* - */ main . busy_timeout -- -\n = 200") }
  }.freeze
  # It is carried out while it is prepared, even where it does not run, or is wrong.
  NO_BUSY_TIMEOUTS = {
    "explain" => ->(db) { db.query("explain pragma busy_timeout = 60000") },
    "only prepared" => ->(db) { db.prepare("pragma busy_timeout") },
    "an error" => lambda do |db|
      db.query("pragma busy_timeout = 60000 more")
    rescue Heddle::DB::ServerError
      nil
    end,
    "prepared anew" => lambda do |db|
      statement = db.prepare("pragma busy_timeout")
      db.create_function("one", arity: 0) { 1 }
      statement.query
    end
  }.freeze

  # SQLite's own handler would sleep in the middle of the statement, and stop all tasks.
  def test_the_pragma_busy_timeout_waits_in_the_scheduler
    BUSY_TIMEOUTS.each { |name, set| assert_waits_in_the_scheduler(name, {}, &set) }
    NO_BUSY_TIMEOUTS.each { |name, set| assert_waits_in_the_scheduler(name, {busy_timeout: 0.2}, &set) }
  end

  def assert_waits_in_the_scheduler(name, options)
    Heddle.run do
      with_db do |holder|
        holder.start_transaction
        with_db(**options) do |db|
          yield db
          turns = 0
          stop = false
          other = Heddle.spawn { (turns += 1) && sleep(0.001) until stop }
          assert_within(2, at_least: 0.15) do
            assert_raises(Heddle::DB::LockTimeout, name) { db.exec("insert into t values (1)") }
          end
          stop = true
          other.value
          assert_operator turns, :>, 10, name
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
        interrupted = Thread.new do
          Thread.current.report_on_exception = false
          writer.driver.instance_variable_get(:@waiter).seconds = 20
          insert.call
        end
        wait_until(what: "the wait for the lock") { interrupted.stop? }
        interrupted.raise("interrupted")
        assert_equal "interrupted", assert_raises(RuntimeError) { interrupted.value }.message
        rows.size
        reader.close
        assert_equal [4], insert.call
        assert_equal [1, 2, 3, 4, 5], writer.query_column("select n from t")
      end
    end
  end

  def test_finished_statements_do_not_block_a_checkpoint
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

  def queue_of(db) = db.driver.instance_variable_get(:@queue)

  # The operation waits for the lock in a thread, until its time is over or an exception arrives it; then it has it.
  def assert_leaves_the_line(name, holder, db, operation, interrupted:)
    line = queue_of(db)
    db.start_transaction
    db.query("create table given_up (n int)")
    db.rollback # to prepare a statement, the schema is read again
    holder.start_transaction
    waiter = Thread.new { operation.call(db) }
    waiter.report_on_exception = false
    if interrupted
      wait_until(what: "the wait for the lock: #{name}") { !line.waiting.empty? && waiter.stop? }
      waiter.raise("interrupted")
    end
    assert_raises(RuntimeError, Heddle::DB::LockTimeout, name) { waiter.value }
    assert_empty line.waiting, name
    waiter = Thread.new { operation.call(db) }
    wait_until(what: "the wait for the lock: #{name}") { !line.waiting.empty? && waiter.stop? }
    holder.rollback
    waiter.value
    assert_empty line.waiting, name
  ensure
    waiter&.kill
  end

  # Runs Ruby code with `db` in a process of its own, until the block ends; the code's first line must have come.
  def in_another_process(code)
    program = "require 'heddle/db'; $stdout.sync = true\n" \
      "db = Heddle::DB.connect(#{"sqlite://#{@path}".inspect})\n#{code}"
    IO.popen([RbConfig.ruby, "-I#{File.expand_path("../../lib", __dir__)}", "-e", program], "r+") do |io|
      assert io.wait_readable(20) && io.gets, "the other process did not begin"
      yield
      io.close_write
    end
  end
end
