# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "tempfile"

# doc/limits.md on sqlite3: it holds the GVL while it works and while it waits for another process's lock, so that
# neither other tasks nor other threads run. The heartbeat of another task shows it.
class SQLite3Test < Minitest::Test
  include LoopHelpers

  # Counts so far that it takes LONG seconds.
  COUNTING = "with recursive counted(n) as (select 1 union all select n + 1 from counted where n < %d) select sum(n) " \
    "from counted"
  LONG = 0.3
  FEW = 10 # turns of a task that sleeps a millisecond each time: a loop that is stopped gives two

  def setup
    require "sqlite3"
    @file = Tempfile.new("heddle-sqlite3")
    @database = SQLite3::Database.new(@file.path)
    @database.execute("create table numbers (n integer)")
  end

  def teardown
    @database.close if @database && !@database.closed?
    @file&.close!
  end

  def test_a_query_stops_the_loop_even_when_offloaded
    count, sum = counting_for(LONG)
    query = -> { assert_equal sum, @database.execute(format(COUNTING, count))[0][0] }
    assert_stops(&query)
    assert_stops { Heddle.offload(&query) }
  end

  def test_sqlites_own_wait_for_a_lock_stops_the_loop
    @database.busy_timeout = (LONG * 1000).round
    refused = -> { assert_raises(SQLite3::BusyException) { @database.execute("insert into numbers values (1)") } }
    while_locked do
      assert_stops(&refused)
      assert_stops { Heddle.offload(&refused) }
    end
  end

  # The handler is Ruby's, and its sleep the scheduler's.
  def test_a_wait_for_a_lock_in_a_ruby_handler_does_not_stop_the_loop
    until_when = nil
    @database.busy_handler { |_| sleep(0.001) && monotonic < until_when }
    while_locked do
      turns = turns_beside do
        until_when = monotonic + LONG
        assert_raises(SQLite3::BusyException) { @database.execute("insert into numbers values (1)") }
        assert_operator monotonic, :>=, until_when
      end
      assert_operator turns, :>, FEW
    end
  end

  # Each has its own connection, as SQLite requires of threads.
  def test_many_tasks_read_and_write
    @database.execute("pragma journal_mode = wal")
    Heddle.run do
      Array.new(20) do |task|
        Heddle.spawn do
          database = SQLite3::Database.new(@file.path)
          database.busy_handler { |_| sleep(0.001) || true }
          5.times { |n| database.execute("insert into numbers values (?)", [task * 5 + n]) && sleep(0) }
          database.close
        end
      end.each(&:value)
    end
    assert_equal [*0...100], @database.execute("select n from numbers order by n").flatten
  end

  # A separate process is the remedy.
  def test_queries_in_other_processes
    count, sum = counting_for(LONG)
    path = @file.path
    @database.close # no connection may be used across a fork
    turns = turns_beside do
      sums = Heddle.map([count, count], processes: 2) { |n|
        SQLite3::Database.new(path).execute(format(COUNTING, n))[0][0]
      }
      assert_equal [sum, sum], sums
    end
    assert_operator turns, :>, FEW
  end

  private

  # How far to count for that, and the sum.
  def counting_for(seconds)
    count = 10_000
    loop do
      start = monotonic
      sum = @database.execute(format(COUNTING, count))[0][0]
      return [count, sum] if monotonic - start >= seconds

      count *= 2
    end
  end

  # Nearly as long as the block takes.
  def assert_stops
    gap, took = gap_and_time { yield }
    assert_operator gap, :>, took * 0.8, "it is no longer a limit: doc/limits.md"
    assert_operator gap, :>, LONG / 2
  end

  # Another connection writes, and does not end its transaction.
  def while_locked
    other = SQLite3::Database.new(@file.path)
    other.execute("begin exclusive")
    yield
  ensure
    other&.close
  end
end
