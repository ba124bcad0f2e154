# frozen_string_literal: true

require "test_helper"
require "support/bench_commands"

runs_on rubies: :oldest, short: false

# The benches of the documents that start databases or caches.
class BenchCommandsOfDatabasesTest < Minitest::Test
  include BenchCommands

  try_each BenchCommands::COMMANDS.grep(BenchCommands::OF_DATABASES)
end
