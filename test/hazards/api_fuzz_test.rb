# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on short: false

# Random sequences of the public API among kills and interrupts. See api_fuzz.rb for what to do with the seed that a
# failure prints. HEDDLE_STRESS sets the length in seconds.
class ApiFuzzTest < Minitest::Test
  include LoopHelpers

  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", 5))

  hard_deadline SECONDS + 130

  def test_random_sequences
    seed = Random.new_seed % 100_000
    output, status = Tempfile.create("api_fuzz") do |file|
      environment = {"SEED" => seed.to_s, "SECONDS" => SECONDS.to_s}
      pid = Process.spawn(environment, RbConfig.ruby, "#{__dir__}/api_fuzz.rb", out: file, err: file)
      [reap(pid, SECONDS + 110), File.read(file.path)].reverse
    end
    assert status&.success?, "seed #{seed}:\n#{output}"
    assert_match(/^\d+ rounds, \d{3,} operations$/, output)
  end
end
