# frozen_string_literal: true

require "test_helper"
require "heddle"
require "heddle/db"
require "support/scripted_mysql"

# Another thread's exception (Thread#raise, Timeout.timeout) strikes Heddle::DB::Pool#with in a plain thread, at the
# end of each call, where Ruby checks for interrupts. The pool has all its places again, and nothing waits for one in
# vain.
class StruckDatabasePoolTest < Minitest::Test
  mode :thread

  Struck = Class.new(Exception) # rubocop:disable Lint/InheritException -- nobody is to rescue it

  EVENTS = %i[return c_return b_return].freeze
  # Ruby's own instructions do these, in which it looks for no interrupt; a TracePoint sees calls.
  OPERATORS = %i[+ - < > ! == [] << held held= pool= lease=].freeze

  def setup
    @server = ScriptedMySQL.new { |peer| peer.welcome && loop { peer.read } }
  end

  def teardown
    @server.close
  end

  def test_the_first_connection
    each_moment { |pool, struck| struck.call(pool) }
  end

  def test_a_connection_that_is_free
    each_moment do |pool, struck|
      pool.with(&:itself)
      struck.call(pool)
    end
  end

  def test_a_connection_that_the_server_has_closed
    each_moment do |pool, struck|
      pool.with { |connection| connection.define_singleton_method(:healthy?) { false } }
      struck.call(pool)
    end
  end

  def test_a_connection_that_is_waited_for
    each_moment do |pool, struck|
      caller, held, over = Thread.current, Thread::Queue.new, false
      holder = Thread.new do
        pool.with do
          held << true
          Thread.pass until over || (caller.stop? && pool.stats[:waiting] == 1)
        end
      end
      held.pop
      begin
        struck.call(pool)
      ensure
        over = true
        holder.join
      end
    end
  end

  # A pool that is closed has told those who wait for its connections.
  def test_close
    moment = 0
    loop do
      pool = Heddle::DB::Pool.new(@server.url, size: 1, timeout: 10, checkout_timeout: 10)
      over = Thread::Queue.new
      holder = Thread.new { pool.with { over.pop } }
      Thread.pass until pool.stats[:connections] == 1 && holder.stop?
      waiter = Thread.new { assert_raises(Heddle::PoolClosed) { pool.with { flunk } } }
      Thread.pass until pool.stats[:waiting] == 1 && waiter.stop?
      where = struck_at(moment += 1, pool, &:close)
      pool.close unless pool.closed?
      assert waiter.join(5), "a caller still waits after the moment #{moment}, #{where}"
      break unless where
    ensure
      over&.push(true)
      [holder, waiter].compact.each(&:join)
    end
    assert_operator moment, :>, 5
  end

  private

  # Yields a pool of one connection, and the call to make on it, until the call was struck at each moment.
  def each_moment
    moment = 0
    loop do
      pool = Heddle::DB::Pool.new(@server.url, size: 1, timeout: 10, checkout_timeout: 10)
      where = nil
      yield pool, ->(at) { where = struck_at(moment += 1, at) }
      break unless where

      assert_includes [[0, 0, 0], [1, 1, 0]], pool.stats.values, "after the moment #{moment}, #{where}"
      assert_equal 1, pool.with { 1 }
    ensure
      pool&.close
    end
    assert_operator moment, :>, 10
  end

  # Where it was struck; nil when the call was over before that moment.
  def struck_at(moment, pool, &call)
    call ||= ->(at) { at.with(&:itself) }
    seen, where = 0, nil
    trace = TracePoint.new(*EVENTS) do |point|
      next unless point.path&.end_with?("db/pool.rb") && !OPERATORS.include?(point.method_id)
      next unless (seen += 1) == moment

      where = [point.event, point.lineno, point.method_id].inspect
      Thread.current.raise(Struck)
    end
    trace.enable(target_thread: Thread.current) { call.call(pool) }
    where
  rescue Struck
    where
  end
end
