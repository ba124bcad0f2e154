# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"
require "open3"

# Tasks under Rails' default isolation level, with which ActiveRecord gives one connection to all fibers of a thread.
class UnmodifiedActiveRecordIsolationTest < UnmodifiedTestCase
  def setup
    super
    require "sqlite3"
    active_record(isolation: :thread)
    ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:", pool: 3, checkout_timeout: 5)
  end

  def teardown
    leave_active_record
    super
  end

  def test_a_second_task_is_refused_while_the_first_works
    Heddle.run do
      release = holding_task
      error = assert_raises(refusal) { pool.with_connection(&:itself) }
      assert_match "config.active_support.isolation_level = :fiber", error.message
      assert_raises(refusal) { lease }
      assert_raises(refusal) { ActiveRecord::Base.transaction {} }
      assert_kind_of Heddle::Error, error
      release.close
    end
  end

  def test_a_task_that_waits_for_its_connection_is_not_overtaken
    hand = Array.new(3) { pool.checkout }
    Heddle.run do
      first = Heddle.spawn { pool.with_connection { |c| [c.select_value("select 1"), hand.include?(c)] } }
      wait_until(what: "a task in the pool's queue") { pool.num_waiting_in_queue == 1 }
      assert_raises(refusal) { pool.with_connection(&:itself) }
      hand.each { |connection| pool.checkin(connection) }
      assert_equal [1, true], first.value
      assert_equal 2, pool.with_connection { |c| c.select_value("select 2") }
    end
    assert_equal 0, pool.stat[:busy]
  end

  def test_tasks_one_after_the_other_and_kept_leases_of_ended_tasks
    Heddle.run do
      values = Array.new(3) { |i| Heddle.spawn { pool.with_connection { |c| c.select_value("select #{i}") } }.value }
      assert_equal [0, 1, 2], values
      2.times { |i| assert_equal i, Heddle.spawn { lease.select_value("select #{i}") }.value }
    end
    assert pool.release_connection
  end

  def test_a_connection_given_back_is_free_for_the_next_while_its_task_lives
    Heddle.run do
      held, gone = Array.new(2) { Thread::Queue.new }
      Heddle.spawn do
        lease
        held.push(true)
        gone.pop
        pool.release_connection
        held.push(true)
        gone.pop
      end
      held.pop
      assert_raises(refusal) { lease }
      gone.push(true)
      held.pop
      assert_equal 1, pool.with_connection { |c| c.select_value("select 1") }
      gone.close
    end
  end

  def test_a_run_inside_a_transaction_of_a_task_continues_it
    Heddle.run do
      Heddle.spawn do
        ActiveRecord::Base.transaction do
          outside = lease
          assert_equal [outside, 1], Heddle.run { [lease, lease.open_transactions] }
          Heddle.run { assert_raises(refusal) { Heddle.spawn { lease }.value } }
        end
      end.value
    end
  end

  def test_a_lease_from_outside_and_one_task
    connection = lease
    Heddle.run do
      pool.with_connection { |c| assert_same connection, c }
      assert_same connection, Enumerator.new { |y| pool.with_connection { |c| y << c } }.next
    end
    assert_same connection, pool.active_connection?
    pool.release_connection
  end

  # Rails' executor does this at the end of each piece of work.
  def test_another_task_does_not_release_a_connection_it_does_not_hold
    Heddle.run do
      release = holding_task
      refute pool.active_connection?
      refute pool.release_connection
      assert_equal 1, pool.stat[:busy]
      release.close
    end
    assert_equal 0, pool.stat[:busy]
  end

  def test_connections_checked_out_by_hand_are_not_shared
    Heddle.run do
      release = holding_task
      connection = pool.checkout
      assert_equal 1, connection.select_value("select 1")
      pool.checkin(connection)
      assert_raises(refusal) { lease }
      release.close
    end
  end

  def test_isolation_by_fiber_refuses_no_task
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    Heddle.run do
      release = holding_task
      assert_equal 1, pool.with_connection { |c| c.select_value("select 1") }
      release.close
    end
  end

  def test_the_support_loads_by_itself_in_either_order
    ["require 'active_record'; require 'heddle'", "require 'heddle'; require 'active_record'"].each do |start|
      assert_equal "true", refused_after(start, "Heddle.run { collide }")
    end
    nested = "Heddle.run { require 'active_record'; Heddle.run { collide } }"
    assert_equal "true", refused_after("require 'heddle'", nested)
    pool = "Heddle::FiberPool.new(1).map([1]) { collide }"
    assert_equal "true", refused_after("require 'heddle'; require 'active_record'", pool)
  end

  private

  def refused_after(start, finish)
    program = <<~RUBY
      #{start}
      def collide
        ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:")
        pool = ActiveRecord::Base.connection_pool
        task = Heddle.spawn { pool.with_connection { sleep } }
        pool.with_connection { puts "shared" }
      rescue => e
        puts e.is_a?(Heddle::Error)
      ensure
        task.cancel
      end
      #{finish}
    RUBY
    out, status = Open3.capture2e(RbConfig.ruby, "-W0", "-rlogger", "-Ilib", "-e", program)
    assert_predicate status, :success?, out
    out.chomp
  end

  # Another task works on the connection until the returned queue is closed.
  def holding_task
    ready, release = Array.new(2) { Thread::Queue.new }
    Heddle.spawn do
      pool.with_connection do
        ready.push(true)
        release.pop
      end
    end
    ready.pop
    release
  end

  def refusal = Heddle::ActiveRecordSupport::SharedConnection

  def pool = ActiveRecord::Base.connection_pool

  # ActiveRecord 7.1 has another name for it.
  def lease = pool.public_send(pool.respond_to?(:lease_connection) ? :lease_connection : :connection)
end
