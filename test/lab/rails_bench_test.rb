# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

runs_on short: false

# What the bench of Rails measures, and its tables, from measures that are made up.
class RailsBenchTest < Minitest::Test
  def setup
    @bench = bench
    @record = Heddle::Lab::Record.new({"bench" => "rails", "seed" => 1, "rounds_asked" => 2,
      "cases" => @bench.cases.map(&:name), "models" => @bench.models.map { |model| {"name" => model.name} }})
  end

  def test_pages_that_are_asked_for
    asked = bench
    parser = OptionParser.new
    asked.define_options(parser)
    parser.parse("--pages", "empty,computing", "--scale", "0.001")
    assert_equal [["empty", nil, 16], ["waiting", "computing", 20]],
      asked.cases.map { |bench_case| bench_case.params.values_at("page", "beside", "count") }
  end

  def test_models_are_compared_with_the_first_threads
    assert_equal "threads:5", @bench.reference_for("fibers", @bench.models.map(&:name))
  end

  def test_times_are_in_milliseconds
    measure("threads:5", "wall" => 10.0, "median" => 3.0, "p99" => 3.4)
    measure("fibers", "wall" => 2.0, "median" => 0.2, "p99" => 0.45)
    assert_equal ["3000 (3000–3000)", "200 (200–200)"], column(/\AMilliseconds to an answer, median/)
    assert_equal ["3400 (3400–3400)", "450 (450–450)"], column(/\AMilliseconds to an answer, 99 %/)
    assert_equal ["100 (100–100)", "500 (500–500)"], column(/\ARequests a second/)
  end

  private

  def bench = Heddle::Lab::Bench.find("rails").new

  # Of the waiting page, for threads:5 and fibers.
  def column(title)
    table = @bench.tables(Heddle::Lab::Summary.new(@record)).find { |other| other.title.match?(title) }
    table.rows.filter_map { |row| row[1].to_s if ["threads:5", "fibers"].include?(row.first.to_s) }
  end

  def measure(model, measures)
    [1, 2].each do |round|
      @record.rounds << Heddle::Lab::Record::Round.new(round: round, case: @bench.cases.first.name, model: model,
        twin: false, measures: {"operations" => 1000, "cpu" => 1.0, "peak_rss_kib" => 102_400, **measures})
    end
  end
end
