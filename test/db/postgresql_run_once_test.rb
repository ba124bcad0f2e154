# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"

# A statement that may have run is not sent again, whatever the server's error says: its states are also those of
# statements that were never begun.
class PostgreSQLRunOnceTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  STATES = %w[26000 42P05 0A000].freeze

  def setup
    @db = DB.connect(postgresql.url, timeout: 20, statement_cache: :always)
    @db.query("create temp table runs (state text)")
    @db.query("create temp sequence counted")
  end

  def teardown
    @db&.close
  end

  def failing(state) = "raise exception 'cached plan must not change result type' using errcode = '#{state}';"

  def each_state(call)
    STATES.each do |state|
      assert_equal state, assert_raises(DB::ServerError) { call.call(state) }.sql_state
      yield state
    end
  end

  def test_procedures_that_commit_and_fail
    STATES.each do |state|
      @db.query(<<~SQL)
        create procedure pg_temp.p_#{state}() language plpgsql as $$
        begin insert into runs values ('#{state}'); commit; #{failing(state)} end $$
      SQL
    end
    ways = [->(state) { @db.query("call pg_temp.p_#{state}()") },
      ->(state) { @db.prepare("call pg_temp.p_#{state}()").query },
      ->(state) { @db.pipeline { |p| p.query("call pg_temp.p_#{state}()") }.value }]
    ways.each.with_index(1) do |way, times|
      each_state(way) do |state|
        assert_equal times, @db.query_value("select count(*) from runs where state = ?", state)
      end
    end
  end

  # No failure takes back what a sequence gave.
  def test_functions_that_count_and_fail
    STATES.each do |state|
      @db.query(<<~SQL)
        create function pg_temp.f_#{state}() returns int language plpgsql as $$
        begin perform nextval('counted'); #{failing(state)} end $$
      SQL
    end
    called = ->(state) { "select pg_temp.f_#{state}()" }
    statements = Hash.new { |all, state| all[state] = @db.prepare(called[state]) }
    ways = [->(state) { @db.query(called[state]) }, ->(state) { statements[state].query },
      ->(state) { @db.each_row(called[state]) { flunk } },
      ->(state) { @db.transaction(retry: 1) { @db.query(called[state]) } },
      ->(state) { @db.transaction { @db.each_row(called[state]) { flunk } } }]
    calls = 0
    (ways * 2).each do |way|
      each_state(way) { assert_equal calls += 1, @db.query_value("select last_value from counted") }
    end
  end

  # ---- what has not run

  def with_changed_table
    @db.query("create temp table changing (a int)")
    @db.query("insert into changing values (1)")
    yield
  end

  def test_a_table_that_has_changed
    with_changed_table do
      statement = @db.prepare("select * from changing order by 1")
      ways = [-> { statement.query.rows }, -> { @db.query("select * from changing").rows }]
      assert_equal [[[1]]] * 2, ways.map(&:call)
      ways.each { |way| @db.transaction { way.call } }
      @db.query_text("alter table changing add b text default 'x'")
      assert_equal [[[1, "x"]]] * 2, ways.map(&:call)
    end
  end

  def test_a_table_that_has_changed_and_is_used_in_transactions_only
    with_changed_table do
      statement = @db.prepare("select * from changing order by 1")
      ways = [-> { statement.query.rows }, -> { @db.query("select * from changing").rows }]
      ways.each { |way| @db.transaction { way.call } }
      @db.query_text("alter table changing add b text default 'x'")
      ways.each do |way|
        error = assert_raises(DB::ServerError) { @db.transaction { way.call } }
        assert_equal ["0A000", true], [error.sql_state, error.retryable?]
        assert_equal [[1, "x"]], @db.transaction { way.call }
      end
      @db.query_text("alter table changing add c int default 7")
      ways.each { |way| assert_equal [[1, "x", 7]], @db.transaction(retry: 1) { way.call } }
    end
  end
end
