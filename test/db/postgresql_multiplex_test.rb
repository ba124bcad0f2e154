# frozen_string_literal: true

require "test_helper"
require "heddle/db/postgresql"
require "shared/db/multiplexing"
require "support/postgresql_dialect"
require "support/postgresql_server"

# Statements of several tasks in flight on the connections of a pool to PostgreSQL.
class PostgreSQLMultiplexTest < Minitest::Test
  include OwnPostgreSQLHelpers
  include PostgreSQLDialect
  include DatabaseMultiplexing

  hard_deadline 60

  def url = postgresql.url

  def tls_options = {sslmode: "require"}

  def session_id = "pg_backend_pid()"

  def echo_int = "select ?::int"

  def echo_text = "select ?::text"

  def slow_echo(more = "") = "select ?::text#{more} from pg_sleep(0.2)"

  def repeat(times) = "select repeat(?::text, #{times})"

  def waiting_sql
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'update shared%'"
  end

  def end_waiting = @watching.query(waiting_sql.sub("count(*)", "pg_terminate_backend(pid)"))

  def lock_sql = "select pg_advisory_lock(1)"

  def locks(pool) = pool.query_value("select count(*) from pg_locks where locktype = 'advisory'")

  def largest = 3_000_000

  def test_a_text_with_a_nul_is_its_askers_alone
    with_pool do |pool|
      all = answers(["a", "a\0b", "c"]) { |value| pool.query_value(echo_text, value) }
      assert_equal ["a", ArgumentError, "c"], all.map { |one| one.is_a?(String) ? one : one.class }
    end
  end

  def test_ways_to_ask
    with_pool do |pool|
      tasks = [-> { pool.query_value("select :a::int + :b::int", a: 1, b: 2) },
        -> { pool.query_value(DB.bind("select ?::int", 4)) }, -> { pool.prepare("select ?::int").query(5).first.first },
        -> { pool.query_row("select ?::date, ?::numeric", Date.new(2026, 1, 2), BigDecimal("1.5")) },
        -> { pool.query_value("select ?::int[]", []) }, -> { pool.exec(UPDATE, 1) },
        -> { pool.query_value(DB.virtual_statement(postgresql: "select 6")) }]
      expected = [3, 4, 5, [Date.new(2026, 1, 2), BigDecimal("1.5")], [], 1, 6]
      2.times { assert_equal expected, spawn_all(tasks, &:call).map(&:value) }
    end
  end

  def test_copy_within_statements_in_flight
    with_pool do |pool|
      tasks = spawn_all(1..4) { |n| pool.query_value(slow_echo, n.to_s) }
      assert_equal 2, pool.with { |db| db.copy_in("copy shared from stdin") { |copy| copy << [31, 1] << [32, 1] } }
      assert_equal %w[1 2 3 4], tasks.map(&:value)
    end
  end

  def test_types_that_a_connection_has_not_met
    with_pool do |pool|
      @other.query("drop type if exists mux_mood, mux_pair; create type mux_mood as enum ('good', 'bad'); " \
        "create type mux_pair as (a int, b mux_mood)")
      tasks = spawn_all(1..12) do |n|
        case n % 3
        when 0 then pool.query_value("select 'good'::mux_mood")
        when 1 then pool.query_value("select ?::int", n)
        else pool.query_value("select row(?::int, 'bad')::mux_pair", n)
        end
      end
      expected = (1..12).map { |n| (n % 3 == 0) ? "good" : n }
      assert_equal(expected, tasks.map(&:value).map { |answer| answer.is_a?(Hash) ? answer.fetch("a") : answer })
    end
  end

  Mux = Struct.new(:text)
  DECODE = ["fails", "asks"].to_h { |name| [name, nil] }
  DB::PostgreSQL.register_type("mux_own", decode: ->(text) { DECODE[text]&.call || Mux.new(text) })

  # The error, and the waits, of a program's own code are those of its statement.
  def test_decoders_of_the_program
    with_pool do |pool|
      @other.query("drop type if exists mux_own; create type mux_own as enum ('fine', 'fails', 'asks')")
      DECODE["fails"] = -> { raise KeyError, "mine" }
      own = "select ?::text::mux_own from generate_series(1, 3)"
      assert_equal [Mux.new("fine")] * 3, pool.query_column(own, "fine")
      all = answers(%w[fine fails fine fails fine]) { |text| pool.query_column(own, text).size }
      assert_equal [3, KeyError, 3, KeyError, 3], all.map { |one| one.is_a?(Integer) ? one : one.class }
      DECODE["asks"] = -> { Heddle.deadline(0.3) { pool.query_value("select 1") } }
      asks, fine = answers(%w[asks fine]) { |text| pool.query_column(own, text).size }
      assert_kind_of Heddle::DeadlineExceeded, asks # it holds the pool's only connection
      assert_equal 3, fine
    end
  end
end
