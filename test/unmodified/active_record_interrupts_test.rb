# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/ways_to_interrupt"
require "support/shaping_proxy"
require "minitest/mock"
require "heddle/timeout"

# An ActiveRecord query is interrupted. The next user of its connection, the pool's only one, must neither wait for
# the rest of that query nor find the connection broken.
class UnmodifiedActiveRecordInterruptsTest < UnmodifiedTestCase
  include ShapingProxies

  SECONDS = 20 # how long the query takes if nothing interrupts it
  AT_ONCE = 5

  ADAPTERS = {
    "postgresql" => [:postgresql, "pg", "pg_sleep(#{SECONDS})"],
    "mysql2" => [:mariadb, "mysql2", "sleep(#{SECONDS})"],
    "trilogy" => [:mariadb, "trilogy", "sleep(#{SECONDS})"]
  }.freeze

  def setup
    super
    active_record(isolation: :fiber, least: "7.1")
  end

  def teardown
    leave_active_record
    super
  end

  ADAPTERS.each_key do |adapter|
    WAYS_TO_INTERRUPT.each do |name, way|
      next if adapter == "mysql2" && name == "Timeout in a thread" # mysql2 defers it until the answer has arrived

      define_method(:"test_#{name.tr(" ", "_")}_on_#{adapter}") do
        assert_usable_after(adapter) { way.call(self, proc { pool.with_connection { |c| slow(c) } }) }
      end

      define_method(:"test_#{name.tr(" ", "_")}_in_a_transaction_on_#{adapter}") do
        query = proc do
          pool.with_connection do |connection|
            connection.transaction do
              connection.select_value("select 1")
              slow(connection)
            end
          end
        end
        assert_usable_after(adapter) { way.call(self, query) }
      end
    end
  end

  def test_an_interrupted_pg_connection_is_kept
    connect("postgresql")
    before = pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
    Heddle.run do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { pool.with_connection { |c| slow(c) } } }
    end
    assert_equal before, pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
  end

  def test_a_pg_connection_that_cannot_be_cancelled_is_closed
    connect("postgresql")
    before = pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
    raw = pool.with_connection(&:raw_connection)
    raw.stub(:cancel, "no room for another connection") do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { pool.with_connection { |c| slow(c) } } }
    end
    after =
      assert_within(AT_ONCE, remeasure: 0) { pool.with_connection { |c| c.select_value("select pg_backend_pid()") } }
    refute_equal before, after
  ensure
    pool.with_connection { |c| c.select_value("select pg_terminate_backend(#{before})") } if before
  end

  def test_a_query_left_running_on_a_raw_connection
    connect("postgresql")
    assert_raises(Heddle::DeadlineExceeded) do
      Heddle.deadline(0.2) { pool.with_connection { |c| c.raw_connection.exec("select pg_sleep(#{SECONDS})") } }
    end
    assert_within(AT_ONCE, remeasure: 0) { assert_equal 7, pool.with_connection { |c| c.select_value("select 7") } }
  end

  # An error that the server reports is no interrupt: the connection and the transaction stay as they are.
  def test_server_errors_keep_the_connection
    ADAPTERS.each_key do |adapter|
      connect(adapter)
      id = (adapter == "postgresql") ? "select pg_backend_pid()" : "select connection_id()"
      pool.with_connection do |connection|
        before = connection.select_value(id)
        assert_raises(ActiveRecord::StatementInvalid) { connection.select_value("select nothing_of_this_name") }
        assert_equal before, connection.select_value(id)
      end
      ActiveRecord::Base.remove_connection
    end
  end

  # Errors that may wrap an exception of Thread#raise.
  def wrapped = [ActiveRecord::StatementInvalid]

  # BEGIN has run, and its answer comes too late.
  def test_a_deadline_in_begin
    require "pg"
    connect("postgresql", proxy = shaping_proxy(server(:postgresql)))
    pool.with_connection { |connection| connection.select_value("select 1") }
    proxy.shape(delay: 0.3)
    Heddle.run do
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.1) { pool.with_connection { |c| c.transaction { c.select_value("select 1") } } }
      end
    end
    proxy.pass
    status = pool.with_connection { |connection| connection.raw_connection.transaction_status }
    assert_equal PG::PQTRANS_IDLE, status, "nobody would commit what the next user does"
  end

  # RELEASE SAVEPOINT has run, and its answer comes too late.
  def test_a_cancel_in_the_release_of_a_savepoint
    connect("postgresql", proxy = shaping_proxy(server(:postgresql)))
    pool.with_connection { |connection| connection.select_value("select 1") }
    releases = false
    Heddle.run do
      task = Heddle.spawn do
        pool.with_connection do |connection|
          connection.transaction do
            connection.select_value("select 1")
            connection.transaction(requires_new: true) do
              connection.select_value("select 1")
              proxy.shape(delay: 0.1)
              releases = true
            end
          end
        end
      rescue
        nil # what is raised in place of the cancel
      end
      sleep 0.001 until releases
      task.cancel
      assert_raises(Heddle::TaskCancelled) { task.value }
    end
    proxy.pass
    assert_equal 7, pool.with_connection { |connection| connection.select_value("select 7") }
  end

  private

  def assert_usable_after(adapter)
    connect(adapter)
    pool.with_connection { |connection| connection.select_value("select 1") }
    assert_within(AT_ONCE) do
      yield
      2.times { |i| assert_equal i, pool.with_connection { |connection| connection.select_value("select #{i}") } }
      Heddle.run { assert_equal 7, pool.with_connection { |connection| connection.select_value("select 7") } }
    end
    assert_equal 0, pool.stat[:busy]
    wait_until(AT_ONCE, what: "the end of the query on the server") { running.zero? }
  end

  def slow(connection) = connection.select_value("select #{@slow}")

  def running
    pool.with_connection do |connection|
      if connection.adapter_name == "PostgreSQL"
        connection.select_value("select count(*) from pg_stat_activity " \
          "where state = 'active' and query like 'select pg_sleep%'")
      else
        connection.select_value("select count(*) from information_schema.processlist where state = 'User sleep'")
      end
    end
  end

  def connect(adapter, proxy = nil)
    name, library, @slow = ADAPTERS.fetch(adapter)
    require library
    db = server(name)
    ActiveRecord::Base.establish_connection(
      adapter: adapter, host: "127.0.0.1", port: (proxy || db).port, username: db.username, password: db.password,
      database: db.database, pool: 1, checkout_timeout: AT_ONCE, reaping_frequency: 0
    )
  end

  def pool = ActiveRecord::Base.connection_pool
end
