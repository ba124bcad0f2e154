# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on rubies: :ends, backends: :one, except: %i[portable], short: false

# Random sequences of operations with the clients among kills and interrupts. See client_fuzz.rb for what to do with the
# seed that a failure prints. HEDDLE_STRESS sets the length in seconds.
class ClientFuzzTest < Minitest::Test
  include LoopHelpers

  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", 3))

  hard_deadline SECONDS + 200

  def test_some_seconds
    seed = Random.new_seed % 100_000
    output, status = Tempfile.create("client_fuzz") do |file|
      environment = {"SEED" => seed.to_s, "SECONDS" => SECONDS.to_s, "ONLY" => "db,memcached,http"}
      pid = Process.spawn(environment, RbConfig.ruby, "#{__dir__}/client_fuzz.rb", out: file, err: file)
      [reap(pid, SECONDS + 180), File.read(file.path)].reverse
    end
    assert status&.success?, "seed #{seed}:\n#{output}"
    assert_match(/^\d+ rounds, \d{2,} operations/, output)
  end
end
