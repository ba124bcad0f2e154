# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# What becomes of jobs when their process is told to stop, or is killed.
class SidekiqStopTest < Minitest::Test
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 120
  mode :fiber

  # Quiet first, then stop: short jobs end, long ones clean up and return to their queue, each once.
  def test_a_stop_lets_short_jobs_end_and_requeues_the_others
    short, long = Array.new(20) { |i| "short-#{i}" }, Array.new(480) { |i| "long-#{i}" }
    sidekiq = start_sidekiq(FIBERS: 510, TIMEOUT: 2)
    push("RecordedJob", long.map { |id| [id, 300] })
    push("ReleasedJob", short.map { |id| [id, "short"] })
    push("SteppedJob")
    wait_until(30, what: "the jobs") { list("began").size == 500 && list("steps").any? }
    sidekiq.signal(:TSTP)
    wait_until(what: "quiet") { sidekiq.log.include?("no longer accepting new work") }
    wait_until(what: "the end of the last fetch") { waiting_for_jobs.zero? }
    push("RecordedJob", [["late", 0]])
    sidekiq.signal(:TERM)
    wait_until(what: "the stop") { sidekiq.log.include?("Pausing to allow jobs to finish") }
    release("short")
    assert_ends(sidekiq, 12)
    assert_equal short.sort, list("done").sort
    assert_equal long.sort, list("cleaned").sort
    stepped, others = list("queue:default").partition { |job| job.include?("SteppedJob") }
    assert_equal [*long, "late"].sort, others.map { |job| JSON.parse(job)["args"].first }.sort
    assert_equal 1, stepped.size, "an iterable job stops between two steps, and continues later"
    assert_empty retried
    assert_empty Sidekiq::ProcessSet.new.to_a
  end

  # They return while Redis still waits with jobs for this process's last requests, and answers with them.
  def test_jobs_that_return_as_others_are_fetched
    ids = Array.new(5) { |i| "id-#{i}" }
    sidekiq = start_sidekiq(FIBERS: 20, TIMEOUT: 0)
    push("RecordedJob", ids.map { |id| [id, 300] })
    wait_until(30, what: "the jobs") { list("began").size == 5 }
    sidekiq.signal(:TERM)
    assert_ends(sidekiq, 12)
    assert_equal ids, queued.sort
  end

  def test_a_second_signal_hurries
    sidekiq = start_sidekiq(FIBERS: 10, TIMEOUT: 60)
    push("RecordedJob", Array.new(5) { |i| ["id-#{i}", 300] })
    wait_until(30, what: "the jobs") { list("began").size == 5 }
    sidekiq.signal(:TERM)
    wait_until(what: "the stop") { sidekiq.log.include?("Pausing to allow jobs to finish") }
    assert_nil sidekiq.wait(0.5), "it waits for the jobs"
    sidekiq.signal(:TERM)
    assert_ends(sidekiq, 8)
    assert_equal Array.new(5) { |i| "id-#{i}" }, queued.sort
    assert_equal 5, list("cleaned").size
  end

  # Sidekiq's own guarantee: a process that is killed loses the jobs that it runs, or is fetching, and no other.
  def test_a_killed_process_loses_only_jobs_that_it_ran
    ids = Array.new(200) { |i| "id-#{i}" }
    sidekiq = start_sidekiq(FIBERS: 20)
    push("RecordedJob", ids.map { |id| [id, 0.3] })
    wait_until(30, what: "some jobs") { list("done").size >= 40 }
    sidekiq.signal(:KILL).wait(10)
    done, began, left = list("done"), list("began"), queued
    assert_operator began.size - done.size, :<=, 20
    assert_empty left & began
    assert_operator (ids - began - left).size, :<=, 20, "fetched, and not begun"
    second = start_sidekiq(FIBERS: 20)
    wait_until(30, what: "the rest") { (left - list("done")).empty? }
    assert_equal list("done").uniq.size, list("done").size
    second.signal(:TERM)
    assert_ends(second, 12)
  end

  private

  # Clients that Redis keeps waiting (b).
  def waiting_for_jobs = redis("CLIENT", "LIST").lines.count { |line| line[/ flags=(\S+)/, 1].include?("b") }
end
