# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "support/ways_to_interrupt"
require "minitest/mock"
require "heddle/timeout"

# A query of ActiveRecord is interrupted. Whoever is given its connection next, the only one of the pool, must not
# wait for the rest of that query, nor find the connection broken.
class UnmodifiedActiveRecordInterruptsTest < UnmodifiedTestCase
  SECONDS = 20 # what the query would take
  AT_ONCE = 5

  ADAPTERS = {
    "postgresql" => [:postgresql, "pg", "pg_sleep(#{SECONDS})"],
    "mysql2" => [:mariadb, "mysql2", "sleep(#{SECONDS})"],
    "trilogy" => [:mariadb, "trilogy", "sleep(#{SECONDS})"]
  }.freeze

  def setup
    super
    library "active_record", gem: "activerecord"
    version = ActiveRecord.version
    skip "ActiveRecord #{version} keeps connections by thread" if version < Gem::Version.new("7.1")
    require "heddle/active_record"
    @isolation_level = ActiveSupport::IsolatedExecutionState.isolation_level
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
  end

  def teardown
    if @isolation_level
      ActiveRecord::Base.remove_connection
      ActiveSupport::IsolatedExecutionState.isolation_level = @isolation_level
    end
    super
  end

  ADAPTERS.each_key do |adapter|
    WAYS_TO_INTERRUPT.each do |name, way|
      next if adapter == "mysql2" && name == "Timeout in a thread" # mysql2 puts it off until the answer is there

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

  def test_a_connection_of_pg_is_kept
    connect("postgresql")
    before = pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
    Heddle.run do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { pool.with_connection { |c| slow(c) } } }
    end
    assert_equal before, pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
  end

  def test_a_connection_of_pg_that_cannot_be_cancelled_is_thrown_away
    connect("postgresql")
    before = pool.with_connection { |c| c.select_value("select pg_backend_pid()") }
    raw = pool.with_connection(&:raw_connection)
    raw.stub(:cancel, "no room for another connection") do
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { pool.with_connection { |c| slow(c) } } }
    end
    after = assert_within(AT_ONCE, remeasure: 0) { pool.with_connection { |c| c.select_value("select pg_backend_pid()") } }
    refute_equal before, after
  ensure
    pool.with_connection { |c| c.select_value("select pg_terminate_backend(#{before})") } if before
  end

  def test_what_was_left_running_on_a_raw_connection
    connect("postgresql")
    assert_raises(Heddle::DeadlineExceeded) do
      Heddle.deadline(0.2) { pool.with_connection { |c| c.raw_connection.exec("select pg_sleep(#{SECONDS})") } }
    end
    assert_within(AT_ONCE, remeasure: 0) { assert_equal 7, pool.with_connection { |c| c.select_value("select 7") } }
  end

  # An error that the server reports is no interrupt: the connection stays as it is, and so does the transaction.
  def test_errors_of_the_server_cost_no_connection
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

  # What an error of Thread#raise's may be wrapped in.
  def wrapped = [ActiveRecord::StatementInvalid]

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

  def connect(adapter)
    name, library, @slow = ADAPTERS.fetch(adapter)
    library library
    db = server(name)
    ActiveRecord::Base.establish_connection(
      adapter: adapter, host: "127.0.0.1", port: db.port, username: db.username, password: db.password,
      database: db.database, pool: 1, checkout_timeout: AT_ONCE, reaping_frequency: 0
    )
  end

  def pool = ActiveRecord::Base.connection_pool
end
