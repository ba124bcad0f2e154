# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# Jobs that do what no job should: the others of their thread run on, and none is lost.
class SidekiqHazardsTest < Minitest::Test
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 120
  mode :fiber

  FIBERS = 50
  SCHEDULED = ENV["HEDDLE_STRESS"] ? 10_000 : 2_000

  def test_jobs_that_leave_by_exit_and_throw
    start_sidekiq(FIBERS: FIBERS)
    ids = push_waiting(20, 1)
    push("LeavingJob", %w[exit throw abort interrupt].zip * 5)
    assert_done(ids)
    wait_until(what: "the dead jobs") { Sidekiq::DeadSet.new.count { |job| job.klass == "LeavingJob" } > 0 }
    assert_done(push_waiting(2 * FIBERS, 0.1))
  end

  # As in a thread that a job starts, this ends the process.
  def test_a_job_that_leaves_a_task_behind_which_exits
    sidekiq = start_sidekiq(FIBERS: FIBERS)
    ids = push_waiting(20, 300)
    push("LeavingJob", [["exit in a task"]])
    assert_equal 1, sidekiq.wait(12)&.exitstatus, sidekiq.log
    assert_equal ids.sort, queued.sort
  end

  def test_a_job_that_kills_its_thread
    start_sidekiq(FIBERS: FIBERS)
    ids = push_waiting(20, 1)
    push("KillingJob")
    assert_done(ids)
    assert_empty retried
    assert_done(push_waiting(2 * FIBERS, 0.1))
  end

  def test_jobs_that_fork
    start_sidekiq(FIBERS: FIBERS)
    ids = push_waiting(30, 0.5)
    push("ForkingJob", [["exit!"], ["exit"]] * 5)
    wait_until(30, what: "the forks") { list("forked").size == 10 }
    assert_equal ["3"], list("forked").uniq
    assert_done(ids)
    assert_equal ids.sort, list("done").sort, "a child runs no job"
    assert_equal 1, Sidekiq::ProcessSet.new.size
  end

  def test_a_job_that_refuses_to_end_returns_to_its_queue
    file = Tempfile.new("at_exit")
    sidekiq = start_sidekiq(FIBERS: FIBERS, TIMEOUT: 1, AT_EXIT: file.path)
    push("ShieldedJob", [["shielded"]])
    push_waiting(3, 300)
    wait_until(30, what: "the jobs") { list("began").size == 4 }
    sidekiq.signal(:TERM)
    assert_ends(sidekiq, 12)
    assert_equal %w[shielded wait-0 wait-1 wait-2], queued.sort
    assert_equal "all is flushed", file.read, "the program's at_exit blocks run"
  end

  def test_scheduled_jobs_of_one_moment
    start_sidekiq(FIBERS: FIBERS)
    ids = Array.new(SCHEDULED) { |i| "late-#{i}" }
    push("CountedJob", ids.zip, at: Time.now.to_f + 1)
    wait_until(90, what: "all jobs") { redis("SCARD", "counted") == ids.size }
    assert_equal ids.sort, redis("SMEMBERS", "counted").sort
    assert_equal ids.size, redis("GET", "count").to_i, "each once"
  end

  private

  def push_waiting(count, seconds)
    ids = Array.new(count) { |i| "wait-#{@pushed.to_i + i}" }
    @pushed = @pushed.to_i + count
    push("RecordedJob", ids.map { |id| [id, seconds] })
    wait_until(30, what: "the beginning") { (ids - list("began")).empty? } if seconds >= 0.5
    ids
  end

  def assert_done(ids) = wait_until(30, what: "the end of the jobs") { (ids - list("done")).empty? }
end
