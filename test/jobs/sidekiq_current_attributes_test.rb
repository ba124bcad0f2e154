# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# Each of many jobs in one thread has the current attributes that it was pushed with.
class SidekiqCurrentAttributesTest < Minitest::Test
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 60
  mode :fiber

  def test_jobs_do_not_share_current_attributes
    start_sidekiq(FIBERS: 50, TENANTS: 1)
    200.times do |i| # as the middleware of the client serializes them
      Sidekiq::Client.push("class" => "TenantJob", "args" => [i],
        "cattr" => {"id" => 1000 + i, "_aj_symbol_keys" => ["id"]})
    end
    wait_until(30, what: "all jobs") { redis("LLEN", "tenants") == 200 }
    assert_equal Array.new(200) { |i| "#{i} #{1000 + i} #{1000 + i}" }.sort, list("tenants").sort
  end
end
