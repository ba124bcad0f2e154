# frozen_string_literal: true

require "test_helper"
require "shared/timeouts"

runs_on backends: :one

# Ruby's own timeouts, with which ours are compared.
class TimeoutStockTest < Minitest::Test
  include Shared::Timeouts

  mode :thread

  def inside(&block) = in_thread(&block)

  private

  # timeout 0.4.1 and older, but for 0.2: sleeps no time at all.
  def refuses_negative? = Gem::Version.new(Timeout::VERSION) >= Gem::Version.new("0.4.2")
end
