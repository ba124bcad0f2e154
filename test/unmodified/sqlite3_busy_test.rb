# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/ways_to_interrupt"
require "tmpdir"
require "heddle/timeout"

# An SQLite connection waits for the lock of another one. The lock's holder, a task or a thread, must be able to
# continue; and whatever ends the wait must leave SQLite's own locks unchanged.
class UnmodifiedSQLite3BusyTest < UnmodifiedTestCase
  TIMEOUT = 8 # seconds that SQLite waits for a lock
  AT_ONCE = 4

  def setup
    super
    require "sqlite3"
    @folder = Dir.mktmpdir
    @path = "#{@folder}/test.db"
    @others = []
    @holder = SQLite3::Database.new(@path)
    @holder.execute_batch("pragma journal_mode = wal; create table rows (id integer)")
  end

  def teardown
    @close&.call
    @holder&.close
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  # Each returns the insert of a row, by a connection of a pool of one.
  def with_sequel(timeout: TIMEOUT)
    require "sequel"
    require "heddle/sequel"
    db = Sequel.sqlite(@path, timeout: (timeout * 1000).to_i, max_connections: 1, keep_reference: false)
    @close = db.method(:disconnect)
    [proc { db[:rows].insert(id: 1) }, proc { db[:rows].count }]
  end

  def with_active_record(timeout: TIMEOUT)
    require "active_record"
    require "heddle/active_record"
    level = ActiveSupport::IsolatedExecutionState.isolation_level
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: @path, timeout: (timeout * 1000).to_i,
      pool: 1, checkout_timeout: AT_ONCE, reaping_frequency: 0)
    @close = lambda do
      ActiveRecord::Base.remove_connection
      ActiveSupport::IsolatedExecutionState.isolation_level = level
    end
    pool = ActiveRecord::Base.connection_pool
    [proc { pool.with_connection { |c| c.execute("insert into rows values (1)") } },
      proc { pool.with_connection { |c| c.select_value("select count(*) from rows") } }]
  end

  def busy_errors
    [*(Sequel::DatabaseError if defined?(Sequel)), *(ActiveRecord::StatementInvalid if defined?(ActiveRecord))]
  end

  def wrapped = busy_errors

  %w[sequel active_record].each do |library|
    define_method(:"test_the_holder_is_a_task_with_#{library}") do
      insert, count = send(:"with_#{library}")
      assert_within(AT_ONCE) do
        Heddle.run do
          hold
          writer = Heddle.spawn(&insert)
          sleep 0.1
          let_go
          writer.value
        end
      end
      assert_equal 1, count.call
    end

    define_method(:"test_the_holder_is_a_thread_with_#{library}") do
      insert, count = send(:"with_#{library}")
      assert_within(AT_ONCE) do
        hold
        holder = Thread.new { sleep(0.1) && let_go }
        insert.call
        holder.join
      end
      assert_equal 1, count.call
    end

    define_method(:"test_the_wait_ends_with_#{library}") do
      insert, count = send(:"with_#{library}", timeout: 0.2)
      hold
      assert_within(AT_ONCE, at_least: 0.2) { assert_raises(*busy_errors) { insert.call } }
      Heddle.run { assert_within(AT_ONCE, at_least: 0.2) { assert_raises(*busy_errors) { insert.call } } }
      let_go
      insert.call
      assert_equal 1, count.call
    end

    # As long as it computes, no nap of the task that waits for the lock ends.
    define_method(:"test_a_task_beside_it_computes_for_long_with_#{library}") do
      insert, count = send(:"with_#{library}")
      Heddle.run do
        hold
        writer = Heddle.spawn(&insert)
        sleep(0.1)
        finish = monotonic + 1.2
        nil while monotonic < finish
        let_go
        writer.value
      end
      assert_equal 1, count.call
    end

    # SQLite's lock of the connection belongs to a native thread: if it is left locked it stops every other thread.
    WAYS_TO_INTERRUPT.each do |name, way|
      define_method(:"test_#{name.tr(" ", "_")}_with_#{library}") do
        insert, count = send(:"with_#{library}")
        count.call
        hold
        assert_within(AT_ONCE, remeasure: 0) { way.call(self, insert) }
        let_go
        assert_within(AT_ONCE, remeasure: 0) { Thread.new { insert.call && count.call }.value }
        assert_equal 1, count.call
      end
    end

    # Signal handlers run while SQLite waits.
    define_method(:"test_a_signal_with_#{library}") do
      insert, count = send(:"with_#{library}")
      ran = false
      before = trap(:USR1) do
        ran = true
        let_go
      end
      hold
      sender = Thread.new { sleep(0.1) && Process.kill(:USR1, Process.pid) }
      assert_within(AT_ONCE, remeasure: 0) { insert.call }
      sender.join
      assert ran
      assert_equal 1, count.call
    ensure
      trap(:USR1, before || "DEFAULT")
    end
  end

  private

  def hold = @holder.execute("begin immediate")

  def let_go = @holder.execute("rollback")
end
