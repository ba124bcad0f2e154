# frozen_string_literal: true

require "test_helper"
require "support/bench_commands"

runs_on rubies: :newest, short: false

# The bench of the documents that needs Rails, which the bundle of the oldest Ruby does not have.
class BenchCommandsOfRailsTest < Minitest::Test
  include BenchCommands

  try_each BenchCommands::COMMANDS.grep(BenchCommands::OF_RAILS)
end
