# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/sidekiq_helpers"

# The locks of sidekiq-unique-jobs hold among fibers of one thread.
class SidekiqUniqueJobsTest < Minitest::Test
  include LoopHelpers
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 60
  mode :fiber

  # Pushes jobs through the gem's client middleware, and says how many were taken.
  CLIENT = SidekiqHelpers.unique_client("UNIQUE") + <<~RUBY
    jobs = Array.new(5) { |number| Array.new(4) { UniqueJob.perform_async(number) } }
    print jobs.flatten.compact.size
  RUBY

  def test_locks
    assert_equal "5", in_client(CLIENT)
    start_sidekiq(FIBERS: 50, UNIQUE: 1)
    wait_until(30, what: "the jobs") { list("unique").size == 5 }
    wait_until(what: "the end of the locks") { locks.empty? }
    assert_equal "5", in_client(CLIENT)
    wait_until(30, what: "the jobs") { list("unique").size == 10 }
    assert_equal %w[0 0 1 1 2 2 3 3 4 4], list("unique").sort
  end

  private

  def locks = redis("KEYS", "uniquejobs:*:LOCKED")
end
