# frozen_string_literal: true

require "test_helper"
require "support/bench_commands"

runs_on rubies: :oldest, short: false

# The benches of the documents that make no requests and start no database or cache.
class BenchCommandsTest < Minitest::Test
  include BenchCommands

  OTHERS = Regexp.union(BenchCommands::OF_DATABASES, BenchCommands::OF_HTTP, BenchCommands::OF_RAILS)

  try_each BenchCommands::COMMANDS.grep_v(OTHERS)
end
