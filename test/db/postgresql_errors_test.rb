# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

# What errors of the server tell, and what the end of a session by the server does to a pool.
class PostgreSQLErrorsTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  Script = ScriptedPostgreSQL

  def setup
    @db = DB.connect(postgresql.url, timeout: 20)
  end

  def teardown
    @db&.close
  end

  def refused(sql, *arguments, expected: DB::ServerError)
    assert_raises(expected) { @db.query(sql, *arguments) }
  end

  def test_everything_that_the_server_says
    @db.query("create temporary table things (id int primary key, " \
      "name text not null constraint short check (length(name) < 5))")
    @db.query("insert into things values (1, 'a')")
    error = refused("insert into things values (?, ?)", 1, "b", expected: DB::UniqueViolation)
    assert_equal ["23505", nil, "things", nil, "things_pkey", "Key (id)=(1) already exists."],
      [error.sql_state, error.code, error.table, error.column, error.constraint, error.detail]
    assert_match(/\Apg_temp/, error.schema)
    assert_equal "#{error.message}\ndetail: #{error.detail}", error.explanation
    error = refused("insert into things values (2, null)", expected: DB::NotNullViolation)
    assert_equal %w[things name], [error.table, error.column]
    assert_equal "short", refused("insert into things values (2, 'too long')", expected: DB::CheckViolation).constraint
    error = refused("select nam from things")
    assert_match(/hint: Perhaps you meant.*things\.name/, error.explanation)
    assert_equal 8, error.position
    assert @db.ping
  end

  # The caret stands under the place in the caller's own text.
  def test_the_place_in_the_statement
    {
      ["select 1 frm x y"] => "x y", ["select ?::int, ?::text, nope", 1, "x"] => "nope",
      ["select 1,\n  2,\n\twhat,\n 4"] => "what", ["select '\u00e4\u20ac\u{1f600}', ?::int, nope", 1] => "nope",
      ["select '?' /* ? */ , ?::int -- ?\n, nope", 1] => "nope", ["select $1::int, $2::int, nope", 1, 2] => "nope",
      ["select '{}'::jsonb ?? 'a', ?::int, nope", 1] => "nope", ["select #{"?::int," * 12} nope", *1..12] => "nope",
      ["select nope, ?::int", 1] => "nope"
    }.each do |(sql, *arguments), place|
      error = refused(sql, *arguments)
      found = error.sql[error.position - 1..]
      assert found.start_with?(place), "#{sql}: #{found}"
      line, caret = error.explanation.lines(chomp: true).last(2)
      assert_equal found[0], line[caret.index("^")], error.explanation
      assert_match(/\Aline #{sql[0, error.position - 1].count("\n") + 1}: /, line)
    end
  end

  # jsonb's operator ?, in each way to give values.
  def test_an_operator_with_a_question_mark
    error = assert_raises(ArgumentError) { @db.query("select '{}'::jsonb ? 'a'") }
    assert_match(/given 0, expected 1.*an operator's \? is written \?\?/, error.message)
    data = %('{"a": 1}'::jsonb)
    assert @db.query_value("select #{data} ?? 'a'")
    assert @db.query_value("select #{data} ?? ?", "a")
    assert @db.query_value("select #{data} ? $1", "a")
    assert @db.query_value("select #{data} ? :key", key: "a")
  end

  # Finding the place took time that grew with the square of their number: half a minute for 60,000.
  def test_the_place_behind_many_parameters
    count = 40_000
    sql = "select #{(["?::int"] * count).join(",")} from"
    error = assert_within(8) { refused(sql, *Array.new(count, 1)) }
    assert_equal sql.length + 1, error.position
  end

  def test_the_place_in_the_statement_of_a_cursor
    error = assert_raises(DB::ServerError) { @db.each_row("select ?::int, nope", 1) { |_| flunk } }
    assert_equal 16, error.position
    error = assert_raises(DB::ServerError) do
      @db.transaction { @db.each_row("select ?::int, nope", 1) { |_| flunk } }
    end
    assert_equal 16, error.position
    futures = @db.pipeline { |p| [p.query("select ?::int, nope", 1)] }
    assert_equal 16, assert_raises(DB::ServerError) { futures.first.value }.position
  end

  def test_a_long_line_is_cut_around_the_place
    sql = "select #{"1," * 300} nope, #{"2," * 300} 3"
    lines = refused(sql).explanation.lines(chomp: true)
    assert_operator lines[-2].length, :<, 150
    assert_equal "n", lines[-2][lines[-1].index("^")]
  end

  def test_the_full_message_has_the_place
    skip "Exception#detailed_message is new in Ruby 3.2" unless Exception.method_defined?(:detailed_message)

    error = refused("select nope")
    assert_match(/column "nope" does not exist.*\nline 1: select nope\n {15}\^/, error.full_message(highlight: false))
    refute_includes error.message, "line 1"
  end

  def test_an_error_survives_a_dump
    error = refused("select nope")
    again = Marshal.load(Marshal.dump(error))
    assert_equal [error.message, error.position, error.sql, error.sql_state],
      [again.message, again.position, again.sql, again.sql_state]
  end

  # Positions that no server sends, and fields that are not text.
  def test_hostile_fields
    ["99999999999999", "0", "-1", "x", "77", ""].each do |position|
      play = proc do |peer|
        peer.welcome
        2.times do
          peer.request
          peer.raw(Script.error("42601", "bad\e[2J", severity: "ERROR", P: position, D: "\xff\0".b.delete("\0")))
          peer.raw(Script.ready)
        end
        peer.read
      end
      Script.play(play) do |server|
        db = DB.connect(server.url, timeout: 20)
        error = assert_raises(DB::ServerError) { db.query("select ?", 1) }
        assert_equal "bad\\x1B[2J", error.message
        assert_predicate error.explanation, :valid_encoding?
        refute_includes error.explanation, "^"
        db.close
      end
    end
  end

  # ---- the end of sessions

  def end_sessions
    postgresql.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pooled'")
  end

  def gone?(pids)
    @db.query_value("select count(*) from pg_stat_activity where pid = any(string_to_array(?, ',')::int[])",
      pids.join(",")).zero?
  end

  def test_idle_connections_that_the_server_ended_are_replaced
    pool = DB::Pool.new(postgresql.url, size: 3, timeout: 20, application_name: "pooled")
    pids = three(pool)
    end_sessions
    wait_until(what: "the end of the sessions") { gone?(pids) }
    assert_empty pids & three(pool), "no caller sees an error"
    assert_equal 3, pool.stats[:connections]
  ensure
    pool&.close
  end

  def three(pool)
    pool.with do |a|
      pool.with { |b| pool.with { |c| [a, b, c].map { |db| db.query_value("select pg_backend_pid()") } } }
    end
  end

  # A restart says good-bye to each session. After the death of one session's process the server ends all sessions,
  # and recovers.
  def test_idle_connections_of_a_server_that_was_restarted_or_crashed
    server = TestPostgreSQL.new.start
    pool = DB::Pool.new(server.url, size: 3, timeout: 20, statement_cache: :always)
    before = three(pool)
    server.restart
    after = three(pool)
    assert_empty before & after, "no caller sees an error"
    Process.kill(:KILL, after.last)
    wait_until(what: "the server's recovery") { recovered?(server, after) }
    Heddle.run { assert_empty after & three(pool) }
    assert_equal [3, 3], pool.stats.values_at(:connections, :free)
  ensure
    pool&.close
    server&.stop
  end

  # Until the server has seen the death it answers, and has the sessions.
  def recovered?(server, pids)
    db = DB.connect(server.url, timeout: 5)
    db.query_value("select count(*) from pg_stat_activity where pid = any(?::int[])", pids).zero?
  rescue DB::Error, SystemCallError
    false
  ensure
    db&.close
  end

  # A request that breaks the protocol in a small way; the session goes on.
  def test_a_violation_that_does_not_end_the_session
    play = proc do |peer|
      peer.welcome
      peer.request
      peer.raw(Script.error("08P01", "unlike what was prepared", severity: "ERROR") + Script.ready)
      peer.request
      peer.raw(Script.row("1") + Script.ready)
      peer.read
    end
    Script.play(play) do |server|
      db = DB.connect(server.url, timeout: 20)
      assert_raises(DB::ServerError) { db.query("select 1") }
      assert db.driver.command("select 1")
      refute_predicate db, :closed?
      db.close
    end
  end
end
