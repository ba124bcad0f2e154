# frozen_string_literal: true

require "test_helper"
require "rails/restarts"

runs_on rubies: :ends, short: false

# With SQLite.
class RailsRestartsTest < Minitest::Test
  include RailsRestarts

  hard_deadline 120
  mode :fiber

  private

  def url = "sqlite://#{@folder}/shop.sqlite3"

  def address = "sqlite3:#{@folder}/shop.sqlite3"
end
