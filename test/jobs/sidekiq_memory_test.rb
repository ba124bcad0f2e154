# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# What jobs cost that wait: 32 to 36 KiB each, where this was written.
class SidekiqMemoryTest < Minitest::Test
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 60
  mode :fiber

  FIBERS = 500
  KIB_A_JOB = 40

  def test_five_hundred_jobs_that_wait
    sidekiq = start_sidekiq(FIBERS: FIBERS)
    push("RecordedJob", [["first", 0.1]]) # loads what a job needs
    wait_until(30, what: "the first job") { list("done").size == 1 }
    before = memory(sidekiq)
    push("RecordedJob", Array.new(FIBERS) { |i| ["wait-#{i}", 300] })
    wait_until(30, what: "the jobs") { list("began").size == FIBERS + 1 }
    growth = memory(sidekiq) - before
    assert_operator growth / FIBERS, :<=, KIB_A_JOB, "KiB for each job that waits"
  end

  private

  # In KiB.
  def memory(process) = File.read("/proc/#{process.pid}/status")[/^VmRSS:\s*(\d+)/, 1].to_f
end
