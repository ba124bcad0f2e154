# frozen_string_literal: true

require "test_helper"
require "support/bench_commands"

runs_on rubies: :oldest, short: false

# The benches of the documents that make requests of HTTP.
class BenchCommandsOfHTTPTest < Minitest::Test
  include BenchCommands

  try_each BenchCommands::COMMANDS.grep(BenchCommands::OF_HTTP)
end
