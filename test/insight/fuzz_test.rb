# frozen_string_literal: true

require "test_helper"
require "support/insight_fuzz/session"

runs_on rubies: :ends, short: false

# Random uses of insight in processes that misbehave. See fuzz.rb for what to do with the seed that a failure prints.
# HEDDLE_STRESS sets how many processes.
class InsightFuzzTest < Minitest::Test
  RUNS = Integer(ENV.fetch("HEDDLE_STRESS", 4))
  SECONDS = 1.5
  PROGRAM = File.expand_path("fuzz.rb", __dir__)

  hard_deadline 60 + (RUNS * 60)

  def test_random_uses_in_processes_that_misbehave
    passed = nil
    output, = capture_io do
      passed = InsightFuzz::Session.new(PROGRAM, seed: Random.new_seed % 100_000, runs: RUNS, seconds: SECONDS).run
    end
    assert passed, output
    assert_match(/^#{RUNS} runs from seed \d+ on, \d+ answers, \d+ traces$/o, output)
  end
end
