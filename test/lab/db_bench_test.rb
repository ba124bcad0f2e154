# frozen_string_literal: true

require "test_helper"
require "json"
require "stringio"
require "heddle/lab"

runs_on short: false

# The benches of databases, run once with little work.
class DBBenchTest < Minitest::Test
  hard_deadline 120

  # @return [Hash{String => Hash}] measures by model and case
  def bench(*argv)
    out, err = StringIO.new, StringIO.new
    status = Heddle::Lab::CLI.run(["bench", *argv, "--rounds", "1", "--no-twins", "--deadline", "30", "-o", "json"],
      out: out, err: err)
    assert_equal [0, ""], [status, err.string], out.string
    JSON.parse(out.string)["rounds"].to_h { |round| [[round["model"], round["case"]], round["measures"]] }
  end

  def test_db
    rounds = bench("db", "--models", "raw,heddle,heddle_multiplexed", "--scale", "0.01")
    assert_equal({"heddle" => 7, "heddle_multiplexed" => 2, "raw" => 3}, rounds.keys.map(&:first).tally)
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
    # The bench's floor makes as many objects as the rows have.
    made, floor = %w[heddle raw].map { |model| rounds.fetch([model, "1000 rows of int, varchar, datetime"]) }
      .map { |m| m["allocations"].fdiv(m["operations"]) }
    assert_in_delta 3000, made, 100
    assert_in_delta made, floor, 100
  end

  def test_db_with_mysql
    rounds = bench("db", "--server", "mysql", "--models", "raw,heddle,mysql2,trilogy", "--scale", "0.01")
    assert_equal({"heddle" => 7, "raw" => 1}, rounds.keys.map(&:first).tally.slice("heddle", "raw"))
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
  end

  def test_sequel
    rounds = bench("db", "--models", "sequel_heddle,sequel_mysql2,sequel_trilogy", "--scale", "0.01")
    present = rounds.keys.map(&:first).tally
    assert_operator present, :<=, {"sequel_heddle" => 3, "sequel_mysql2" => 3, "sequel_trilogy" => 3}
    assert_equal 3, present["sequel_heddle"]
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
  end

  def test_postgresql
    rounds = bench("postgresql", "--scale", "0.01")
    cases = {"heddle" => 12, "heddle_multiplexed" => 2, "pg" => 11, "sequel" => 4, "sequel_heddle" => 4, "racket" => 3}
    present = rounds.keys.map(&:first).tally
    assert_operator present, :<=, cases # racket and the gems belong to others, and may not be installed
    assert_equal [12, 2], present.values_at("heddle", "heddle_multiplexed")
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
  end

  def test_sqlite
    rounds = bench("sqlite", "--scale", "0.01")
    present = rounds.keys.map(&:first).tally
    cases = {"heddle" => 6, "sqlite3" => 6, "extralite" => 6, "sequel" => 5, "sequel_heddle" => 5}
    assert_operator present, :<=, cases # some may not be installed
    assert_equal 6, present["heddle"]
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
  end

  def test_odbc
    rounds = bench("odbc", "--scale", "0.01")
    present = rounds.keys.map(&:first).tally
    assert_operator present, :<=, {"heddle" => 4, "ruby_odbc" => 4} # which may not be installed
    assert_equal 4, present["heddle"]
    rounds.each_value { |measures| assert_operator measures["operations"], :>, 0 }
  end

  # The number of segments of a statement does not depend on a clock.
  SEGMENTS = {
    "nagle_flushed" => 3, "nodelay_flushed" => 3, "nodelay_riding" => 2, "one_flight" => 1, "mysql2" => 3,
    "mysql2_text" => 1, "racket" => 2, "pg" => 3, "pg_text" => 1
  }.freeze

  # The others belong to other libraries, which may not be installed.
  {"mariadb" => 4, "postgresql" => 4, "sqlite" => 2}.each do |database, least|
    define_method(:"test_stall_with_#{database}") do
      rounds = bench("stall", "--databases", database, "--models", [*SEGMENTS.keys, "sqlite3"].join(","),
        "--scale", "0.03")
      assert_operator rounds.size, :>=, least
      rounds.each { |(model, _), measures| assert_few_segments(model, measures) }
    end
  end

  def test_stall_by_odbc
    rounds = bench("stall", "--databases", "odbc", "--models", "nodelay_riding,one_flight,ruby_odbc", "--scale", "0.03")
    assert_operator rounds.size, :>=, 2
  end

  private

  def assert_few_segments(model, measures)
    return unless measures["segments"] # by a library with a socket of its own, or none

    assert_equal SEGMENTS.fetch(model), (measures["segments"].to_f / measures["operations"]).round, model
    return unless measures["system_calls"] # where tracing is not allowed

    assert_includes (model == "racket") ? 4..40 : 2..12, measures["system_calls"].fdiv(measures["operations"]), model
  end
end
