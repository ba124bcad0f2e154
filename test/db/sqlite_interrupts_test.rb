# frozen_string_literal: true

require "test_helper"
require "support/interrupt_at_moment"
require "support/sqlite_helpers"

# A statement that waits for a locked database is interrupted in a plain thread, at each moment at which Ruby lets an
# exception in: behind it nobody is left in the queue of those who wait, and no transaction stays open. With
# HEDDLE_STRESS at all moments, else at every third, other ones in each run.
class SQLiteInterruptsTest < Minitest::Test
  include SQLiteHelpers
  include InterruptAtMoment

  hard_deadline 60

  STRIDE = ENV.key?("HEDDLE_STRESS") ? 1 : 3
  Interrupted = Class.new(StandardError)
  EVENTS = %i[return b_return c_return].freeze
  # An interrupt there is an "exception reentered"; and at the end of these, which Ruby has instructions for, none
  # comes.
  SAFE = %i[backtrace set_backtrace exception size > < <= >= == ! empty? [] - + nil? waiting seconds].freeze

  def setup
    super
    @holder, @other = connect, connect
    @holder.query("create table t (n int)")
    renew
  end

  def teardown
    [@holder, @other, @interrupted].each { |db| db&.close }
    super
  end

  def test_a_statement
    at_each_moment { @interrupted.exec("insert into t values (1)") }
  end

  def test_a_prepared_statement
    statement = nil
    at_each_moment(-> { statement = @interrupted.prepare("insert into t values (1)") }) { statement.exec }
  end

  def test_rows
    at_each_moment { @interrupted.each_row("insert into t values (1) returning n").to_a }
  end

  def test_a_transaction
    at_each_moment { @interrupted.transaction { @interrupted.exec("insert into t values (1)") } }
  end

  # No other connection holds a lock here, so that the block runs.
  def test_the_rollback_of_a_transaction
    at_each_moment(locked: false) { @interrupted.transaction { raise LocalJumpError, "rolled back" } }
  end

  # No mask holds back what handlers of signals raise.
  {commits: -> {}, is_rolled_back: -> { raise IOError, "of the block" }}.each do |ending, end_of_block|
    define_method("test_exceptions_while_a_transaction_#{ending}") do
      [1, 2, 3, 7].each do |again|
        (1..).each do |moment|
          db = connect
          reached = raised_at([moment, again]) { |armed| in_transaction(db, armed, end_of_block) }
          assert_equal [0, false], [db.transaction_depth, !db.closed? && db.in_transaction?], reached.inspect
          assert_equal 1, @other.exec("insert into t values (2)"), reached.inspect
          assert_equal 1, Thread.new { db.query_value("select 1") }.value, reached.inspect unless db.closed?
          break if reached.empty?
        ensure
          db&.close
        end
      end
    end
  end

  def test_exceptions_while_a_connection_returns_to_its_pool
    [1, 2, 3, 7].each do |again|
      (1..).each do |moment|
        pool = Heddle::DB::Pool.new("sqlite://#{@path}", size: 1)
        reached = raised_at([moment, again]) { |armed| pool.with { |db| left_in_transaction(db, armed) } }
        assert_equal 1, @other.exec("insert into t values (2)"), reached.inspect
        assert_equal 1, pool.exec("insert into t values (2)"), reached.inspect
        break if reached.empty?
      ensure
        pool&.close
      end
    end
  end

  # A change of the schema closes the statements that stay prepared. One that was closed would do nothing.
  def test_the_end_of_kept_statements
    db = connect(statement_cache: :always)
    kept = ["insert into t values (3)", "delete from t where n = 3"]
    (1..).each do |moment|
      assert_equal [1, 1], kept.map { |sql| db.exec(sql) }, @reached
      break unless interrupted_at(moment, -> { db.query("create table if not exists u (n int)") })
    end
  ensure
    db&.close
  end

  # One thread leaves the queue while another one is in the middle of leaving.
  def test_two_threads_leave_the_queue_at_once
    (1..).each do |moment|
      queue = Heddle::DB::SQLite.const_get(:WaitQueue).new
      waiters = Array.new(3) { Heddle::DB::SQLite.const_get(:Waiter).new(queue, 1) }
      waiters.each { |waiter| queue.enter(waiter) }
      came = at(moment, -> { Thread.new { queue.leave(waiters[1]) }.join }) { queue.leave(waiters[0]) }
      assert_equal [[waiters[2]], true], [queue.waiting.keys, queue.first?(waiters[2])] if came
      break unless came
    end
  end

  private

  def renew
    @interrupted&.close
    @interrupted = connect(busy_timeout: 0.003)
    @queue = @interrupted.driver.instance_variable_get(:@queue)
  end

  def at_each_moment(before = -> {}, locked: true, &operation)
    before.call
    reached = nil
    (rand(1..STRIDE)..).step(STRIDE) do |moment|
      @holder.start_transaction if locked
      reached = interrupted_at(moment, operation)
      @holder.rollback if locked
      break unless reached

      assert_empty @queue.waiting, reached
      depth = @interrupted.transaction_depth
      assert_equal [false, 0], [@interrupted.in_transaction?, depth], reached unless @interrupted.closed?
      assert_equal 1, @other.exec("insert into t values (2)"), reached
      renew && before.call if @interrupted.closed?
      assert_equal 1, @interrupted.exec("delete from t where n = 2"), reached
    end
  end

  def left_in_transaction(db, armed)
    db.start_transaction
    db.exec("insert into t values (1)")
    armed.call
  end

  def in_transaction(db, armed, end_of_block)
    db.transaction do
      db.exec("insert into t values (1)")
      armed.call
      end_of_block.call
    end
  rescue IOError
    nil
  end

  # @return [String, nil] where the interrupt came; nil if there were not so many moments
  def interrupted_at(moment, operation)
    Thread.new do
      at(moment, -> { Thread.current.raise(Interrupted) }, &operation)
    rescue Interrupted, LocalJumpError, Heddle::DB::LockTimeout
      @reached
    end.value
  end

  def at(moment, interrupt)
    @reached = nil
    trace = TracePoint.new(*EVENTS) do |event|
      next if SAFE.include?(event.method_id) || (moment -= 1) != 0

      @reached = "#{event.event} of #{event.method_id} at #{event.path}:#{event.lineno}"
      interrupt.call
    end
    trace.enable(target_thread: Thread.current) { yield }
    @reached
  ensure
    trace&.disable
  end
end
