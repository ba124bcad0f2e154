# frozen_string_literal: true

require "test_helper"
require "heddle/lab"

runs_on short: false

# The tables of the bench of jobs, from measures that are made up.
class JobsBenchTest < Minitest::Test
  SOLID = "1000 empty jobs of Solid Queue"
  MODELS = %w[threads:25 threads:100 fibers:100 fibers:500 solid_threads:100 solid_fibers:100 solid_heddle:100].freeze

  def setup
    @bench = Heddle::Lab::Bench.find("jobs").new
    @bench.model_names = MODELS
    @record = Heddle::Lab::Record.new({"bench" => "jobs", "seed" => 1, "rounds_asked" => 2,
      "cases" => @bench.cases.map(&:name), "models" => MODELS.map { |name| {"name" => name} }})
  end

  def test_memory_of_jobs_that_all_wait
    measure("threads:100", "jobs that all wait", "operations" => 100, "idle_kib" => 10_240, "held_kib" => 20_480)
    measure("fibers:100", "jobs that all wait", "operations" => 100, "idle_kib" => 12_288, "held_kib" => 16_384)
    measure("fibers:500", "jobs that all wait", "operations" => 500, "idle_kib" => 12_288, "held_kib" => 28_928)
    table = table(/\AMemory while all jobs wait/)
    assert_equal [%w[threads:100 10.0 20.0 10.0 102 1.00 1.00], %w[fibers:100 12.0 16.0 4.00 41.0 0.40 0.40],
      %w[fibers:500 12.0 28.2 16.2 33.3 1.62 0.32]], table.rows.map { |row| row.map(&:to_s) }
  end

  def test_only_models_with_a_hundred_jobs_wait_together
    bench_case = @bench.cases.find { |other| other.name == "jobs that all wait" }
    models = @bench.models.select { |model| @bench.applies?(model, bench_case) }
    assert_equal %w[threads:100 fibers:100 fibers:500], models.map(&:name)
  end

  def test_fibers_of_solid_queue_on_both_loops_are_compared
    speed = {"operations" => 1000, "jobs_cpu" => 1.0, "growth_kib" => 8192, "jobs_rss_kib" => 80_000}
    measure("solid_fibers:100", SOLID, speed.merge("wall" => 2.0))
    measure("solid_heddle:100", SOLID, speed.merge("wall" => 1.0, "jobs_cpu" => 0.5))
    row = table(/on Heddle's loop, as a ratio/).rows.fetch(0)
    assert_equal ["solid_heddle:100, #{SOLID}", "2.00 [2.00–2.00]", "0.50 [0.50–0.50]", "1.00 [1.00–1.00]"], row
  end

  private

  def measure(model, name, measures)
    [1, 2].each do |round|
      @record.rounds << Heddle::Lab::Record::Round.new(round: round, case: name, model: model, twin: false,
        measures: measures)
    end
  end

  def table(title) = @bench.tables(Heddle::Lab::Summary.new(@record)).find { |table| table.title.match?(title) }
end
