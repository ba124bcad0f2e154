# frozen_string_literal: true

require "heddle/lab"

# A bench of two cases whose models fail on demand.
class TrialBench < Heddle::Lab::Bench
  bench "trial", about: "tests the runner", default_models: %w[good], peers: %w[peer],
    kinds: %w[good heddle wrong hang crash leave fail peer absent].to_h { |kind| [kind, :none] }
  Heddle::Lab::Bench.all.delete("trial")

  PATHS = [File.expand_path("workloads", __dir__)].freeze

  def cases
    @cases ||=
      [1, 2].map { |factor| Heddle::Lab::Case.new(name: "x#{factor}", unit: "mm", params: {"factor" => factor}) }
  end

  def title = "A trial"

  def tables(summary)
    matrix = Heddle::Lab::Report::Matrix.new(summary, self)
    [matrix.values(OPERATIONS), matrix.ratios(OPERATIONS), matrix.troubles].compact
  end

  OPERATIONS = Heddle::Lab::Metric
    .new(key: :operations, title: "Operations", better: :higher, value: ->(m) { m["operations"] })

  # Name of the case whose result is the same each time, or nil.
  attr_accessor :constant

  def repeats?(bench_case) = bench_case.name != constant

  def self.run(models, rounds: 2, deadline: 20, seed: 7, constant: nil, twins: true, **how)
    bench = new
    bench.model_names = models
    bench.constant = constant
    child = Heddle::Lab::Child.new(deadline: deadline, paths: PATHS)
    affinity = Heddle::Lab::Affinity.new(cores: [])
    record = Heddle::Lab::Runner.new(bench, rounds: rounds, seed: seed, child: child, affinity: affinity,
      argv: ["bench", "trial"], twins: twins, **how).run
    [bench, Heddle::Lab::Summary.new(record)]
  end
end
