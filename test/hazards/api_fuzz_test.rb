# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Random sequences of the public API among kills and strikes. See api_fuzz.rb for what to do with the seed that a
# failure prints.
class ApiFuzzTest < Minitest::Test
  include LoopHelpers

  hard_deadline 150

  def test_twenty_seconds
    seed = Random.new_seed % 100_000
    output, status = Tempfile.create("api_fuzz") do |file|
      environment = {"SEED" => seed.to_s, "SECONDS" => "20"}
      pid = Process.spawn(environment, RbConfig.ruby, "#{__dir__}/api_fuzz.rb", out: file, err: file)
      [reap(pid, 130), File.read(file.path)].reverse
    end
    assert status&.success?, "seed #{seed}:\n#{output}"
    assert_match(/^\d+ rounds, \d{3,} operations$/, output)
  end
end
