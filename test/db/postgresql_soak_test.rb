# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"

runs_on short: false

# Fifty tasks over a pool of ten connections, among deadlines, cancels and forks. No answer is another query's, no place
# of the pool is lost, no statement runs on, and a transaction happened exactly if its caller was told so. HEDDLE_STRESS
# sets the length in seconds, HEDDLE_STRESS_SEED what a failure printed.
class PostgreSQLSoakTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", 2))
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })
  TASKS = 50
  PLACES = 10
  # Children take long.
  FORKS = 1.0 / 400

  hard_deadline SECONDS + 60

  DB = Heddle::DB

  def setup
    @random = Random.new(SEED)
    @counts = Hash.new(0)
    @said = {}
    @number = 0
    @pool = DB::Pool.new(postgresql.url, size: PLACES, timeout: 20, checkout_timeout: 30, application_name: "soak")
    @pool.query("drop table if exists soak")
    @pool.query("create table soak (n int primary key)")
  end

  def teardown
    @pool&.close
  end

  def test_fifty_tasks_over_ten_connections
    Heddle.run do
      finish = monotonic + SECONDS
      tasks = Array.new(TASKS) { start(finish) }
      while monotonic < finish
        sleep 0.005
        index = @random.rand(TASKS)
        tasks[index].cancel
        @counts[:cancel] += 1
        tasks[index].wait(30) || flunk("a cancelled task does not end: #{tasks[index].inspect}")
        tasks[index] = start(finish)
      end
      tasks.each { |task| task.wait(30) || flunk("a task does not end: #{task.inspect}") }
      tasks.each(&:value)
      assert_equal [0, 0], [@pool.stats[:connections] - @pool.stats[:free], @pool.stats[:waiting]], context
      assert_equal Array.new(PLACES) { |n| n }, Heddle::FiberPool.new(PLACES).map((0...PLACES).to_a) { |n| answered(n) }
    end
    wait_until(what: "the end of interrupted queries") { running.zero? }
    there = @pool.query_column("select n from soak").to_h { |n| [n, true] }
    assert_empty @said.select { |n, committed| committed != there.fetch(n, false) }, context
    assert_operator @counts.values_at(:answer, :committed, :interrupted).min, :>, 0, context
    puts context if ENV.key?("HEDDLE_STRESS")
  end

  private

  def context = "seed #{SEED}: #{@counts.sort.to_h}"

  # Waits for tasks that are cancelled raise no error of theirs: value does, for an error of its own.
  def start(finish)
    Heddle.spawn do
      job while monotonic < finish
      :done
    rescue Heddle::Cancellation
      :cancelled
    end
  end

  def job
    case (chance = @random.rand)
    when ...FORKS then in_a_child
    when ...0.3 then answered(number)
    when ...0.4 then sleeps
    when ...0.5 then pipelined
    when ...0.6 then a_cursor_that_is_left
    else transaction(atomic: chance > 0.85)
    end
  end

  def number = @number += 1

  def count(what) = @counts[what] += 1

  # Its own answer, and no other's.
  def answered(n)
    assert_equal n, @pool.query_value("select ?::int", n), context
    count(:answer)
    n
  end

  def pipelined
    mine = Array.new(3) { number }
    answers = @pool.pipeline { |p| mine.map { |n| p.query("select ?::int", n) } }.map { |future| future.value[0][0] }
    assert_equal mine, answers, context
    count(:pipeline)
  end

  # The connection is closed, and the server stops the query.
  def sleeps
    limited(0.001 + @random.rand * 0.02) { @pool.query("select pg_sleep(0.03)") }
  end

  def a_cursor_that_is_left
    from = number
    @pool.each_row("select g + ? from generate_series(0, 9) as g", from, fetch: 3) do |(n)|
      assert_equal from, n, context
      break
    end
    count(:cursor)
  end

  def limited(seconds)
    Heddle.deadline(seconds) { yield }
  rescue Heddle::DeadlineExceeded
    count(:interrupted)
    :interrupted
  end

  # What a caller was told: true, false for a transaction that raised before its commit, nothing where an error came
  # during the commit: then the server may or may not have committed.
  def transaction(atomic:)
    n = number
    committing = false
    outcome = limited(0.002 + @random.rand**2 * 0.2) do
      @pool.with do |db|
        next one_flight(db, n) { committing = true } if atomic

        db.transaction do
          several_flights(db, n)
          committing = true
        end
      end
      :committed
    rescue IndexError
      :rolled_back
    end
    @said[n] = true if outcome == :committed
    outcome = committing ? :unknown : :rolled_back if outcome == :interrupted
    count(outcome)
  ensure
    @said[n] = false if n && !committing
  end

  def one_flight(db, n)
    db.pipeline(atomic: true) do |p|
      p.query("insert into soak values (?)", n)
      p.query("select 1")
      yield
    end
  end

  def several_flights(db, n)
    db.exec("insert into soak values (?)", n)
    db.query("select pg_sleep(0.005)") if n.even?
    assert_equal n, db.query_value("select max(n) from soak where n = ?", n), context
    raise IndexError, "rolled back" if (n % 7).zero?
  end

  # The parent's connections are not the child's: it makes one of its own, and the parent's go on.
  def in_a_child
    n = number
    child = fork do
      status = Heddle.run { (@pool.query_value("select ?::int", n) == n) ? 0 : 1 }
      exit!(status)
    rescue Exception # rubocop:disable Lint/RescueException
      exit!(2)
    end
    assert_equal 0, Process.wait2(child)[1].exitstatus, "#{context}: a child's own connection"
    child = nil
    count(:fork)
  ensure
    Process.detach(child) if child # its task was interrupted
  end

  def running
    @pool.query_value("select count(*) from pg_stat_activity where application_name = 'soak' and state <> 'idle' " \
      "and pid <> pg_backend_pid()")
  end
end
