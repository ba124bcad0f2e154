# frozen_string_literal: true

# bin/test: only with --all

require "test_helper"
require "support/bench_commands"

# The benches of the documents that make no requests and start no database or cache.
class BenchCommandsTest < Minitest::Test
  include BenchCommands

  try_each BenchCommands::COMMANDS.grep_v(Regexp.union(BenchCommands::OF_DATABASES, BenchCommands::OF_HTTP))
end
