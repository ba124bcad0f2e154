# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "minitest/mock"

# ActiveRecord with connections that belong to fibers, on fibers that Heddle reuses.
class UnmodifiedActiveRecordTest < UnmodifiedTestCase
  DELAY = 0.2
  POOL = COUNT
  PATIENCE = 10

  def setup
    super
    require "trilogy"
    active_record(isolation: :fiber, least: "7.1")
    connect(pool: POOL)
  end

  def teardown
    leave_active_record
    super
  end

  on_each_host "twenty queries of 200 ms" do |host|
    assert_at_once(host, each: DELAY, under: 1.5, expected: Array.new(COUNT) { |i| i }) { |i| query(i) }
  end

  def test_the_same_queries_in_a_row
    assert_in_a_row(each: DELAY, expected: Array.new(COUNT) { |i| i }) { |i| query(i) }
  end

  # Half as many connections as the tasks want: the others wait for their turn in ActiveRecord's own queue.
  on_each_host "tasks that wait for a connection" do |host|
    connect(pool: COUNT / 2)
    assert_at_once(host, each: 2 * DELAY, under: 1.8, expected: Array.new(COUNT) { |i| i }) { |i| query(i) }
    assert_operator pool.stat[:connections], :<=, COUNT / 2
  end

  # Leased connections go back to the pool when their task ends. This one is in no table of the pool's by fiber: only
  # its owner identifies it.
  def test_a_connection_checked_out_by_hand_and_leaked
    assert_leak_is_reaped { pool.checkout.tap(&:verify!) }
  end

  def test_a_transaction_left_open_is_rolled_back
    with_table do
      Heddle.run do
        Heddle.spawn do
          connection = lease
          connection.begin_transaction
          connection.execute("insert into leaks values (1)")
        end.value
        wait_until(what: "the death of the fiber that leaked") { pool.stat[:dead] == 1 }
        pool.reap
        assert_equal 0, Heddle.spawn { pool.with_connection { |c| c.select_value("select count(*) from leaks") } }.value
      end
    end
  end

  def test_a_wait_for_a_lock_of_the_spawners_transaction_tells_of_it
    with_table do
      lease.execute("insert into leaks values (1)")
      ActiveRecord::Base.transaction do
        lease.execute("update leaks set id = 2")
        error = assert_raises(ActiveRecord::LockWaitTimeout) { Heddle.run { Heddle.spawn { wait_for_lock }.value } }
        assert_match(/Lock wait.*the code that spawned this task has a transaction open/, error.message)
        raise ActiveRecord::Rollback
      end
    end
  end

  def test_more_leases_than_connections
    connect(pool: 3)
    numbers = Heddle.run do
      Array.new(12) { |i| Heddle.spawn { lease.select_value("select #{i}") }.value }
    end
    assert_equal (0...12).to_a, numbers
    assert_equal 0, pool.stat[:busy]
    assert_operator pool.stat[:connections], :<=, 3
  end

  # The reason for the patch: without it the connection goes to the next task, whose fiber is the same.
  def test_without_the_patch_the_next_task_inherits_the_connection
    Heddle::ActiveRecordSupport.stub(:holds?, false) do
      Heddle.run do
        leaked, fiber = Heddle.spawn { [lease, Fiber.current] }.value
        found = wait_until(what: "a task on the same fiber") do
          Heddle.spawn { [pool.active_connection?] if Fiber.current.equal?(fiber) }.value
        end
        assert_same leaked, found.first
        Heddle.spawn { pool.release_connection }.value
      end
    end
  end

  def test_tasks_that_give_their_connection_back_still_share_fibers
    fibers = Heddle.run do
      Array.new(50) do
        Heddle.spawn do
          pool.with_connection { |connection| connection.select_value("select 1") }
          Fiber.current
        end.value
      end
    end
    assert_operator fibers.uniq(&:object_id).size, :<, 10
  end

  def test_connections_owned_by_threads_retire_no_fiber
    ActiveSupport::IsolatedExecutionState.isolation_level = :thread
    Heddle.run do
      Heddle.spawn { lease }.value
      refute Heddle::ActiveRecordSupport.holds?(Fiber.current)
    end
    pool.release_connection
  end

  private

  # The block leaks a connection that is really connected: the reaper removes one that never was.
  def assert_leak_is_reaped
    Heddle.run do
      leaked, fiber = Heddle.spawn { [yield, Fiber.current] }.value
      wait_until(what: "the death of the fiber that leaked") { !fiber.alive? }
      mine, heir = Heddle.spawn { [pool.with_connection { |connection| connection }, Fiber.current] }.value
      refute_same fiber, heir
      refute_same leaked, mine, "the next task was given the leaked connection before it was reaped"
      assert_equal 1, pool.stat[:dead]
      pool.reap
      assert_equal({dead: 0, busy: 0, idle: 2}, pool.stat.slice(:dead, :busy, :idle))
      assert_nil leaked.owner
      assert_equal 1, leaked.select_value("select 1")
    end
  end

  def query(i)
    pool.with_connection { |connection| connection.select_rows("select #{i}, sleep(#{DELAY})").first.first }
  end

  def wait_for_lock
    pool.with_connection do |connection|
      connection.execute("set session innodb_lock_wait_timeout = 1")
      connection.execute("update leaks set id = 3")
    end
  end

  def with_table
    pool.with_connection { |connection| connection.execute("create table leaks (id int) engine = InnoDB") }
    yield
  ensure
    pool.with_connection do |connection|
      # The transaction of a failed test may still hold the table.
      connection.execute("set session lock_wait_timeout = 5")
      connection.execute("drop table if exists leaks")
    end
  end

  def pool = ActiveRecord::Base.connection_pool

  # ActiveRecord 7.1 has another name for it.
  def lease = pool.public_send(pool.respond_to?(:lease_connection) ? :lease_connection : :connection)

  # The reaper's own thread is off (a frequency of 0), so that a test decides when it reaps.
  def connect(pool:)
    db = server(:mariadb)
    ActiveRecord::Base.establish_connection(
      adapter: "trilogy", host: db.host, port: db.port, username: db.username, password: db.password,
      database: db.database, pool: pool, checkout_timeout: PATIENCE, reaping_frequency: 0
    )
  end
end
