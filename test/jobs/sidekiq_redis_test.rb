# frozen_string_literal: true

require "test_helper"
require "support/shaping_proxy"
require "support/sidekiq_helpers"

runs_on short: false

# A Redis that restarts, is slow, or cannot be reached for a while, under load: every job is accounted for.
#
# With Sidekiq's own fetch a job can be lost while its bytes are on their way: Redis has removed it from the queue, and
# nobody has it. That holds for threads, too; here it may be as many as are fetched at once.
class SidekiqRedisTest < Minitest::Test
  include ShapingProxies
  include SidekiqHelpers

  hard_deadline(ENV["HEDDLE_STRESS"] ? 900 : 240)
  mode :fiber

  ON_THEIR_WAY = 32 # in each of the interruptions
  PATIENCE = ENV["HEDDLE_STRESS"] ? 300 : 90
  JOBS = ENV["HEDDLE_STRESS"] ? 100_000 : 800

  def setup
    super
    start_redis(DurableRedis)
  end

  def teardown
    super
    @redis&.stop
  end

  def test_a_restart_under_load
    ids = push_jobs(0.02)
    sidekiq = start_sidekiq(FIBERS: 100)
    [3, 2].each do |part|
      wait_until(PATIENCE, what: "some jobs") { length("done") > JOBS / part }
      @redis.restart
    end
    assert_accounted(ids, sidekiq)
  end

  def test_a_cut_network
    proxy = shaping_proxy(@redis)
    ids = push_jobs(0.02)
    sidekiq = start_sidekiq("redis://#{proxy.host}:#{proxy.port}", FIBERS: 100)
    3.times do |i|
      wait_until(PATIENCE, what: "some jobs") { length("done") > (i + 1) * JOBS / 5 }
      proxy.reset
    end
    assert_accounted(ids, sidekiq)
  end

  # 500 fibers share ten connections, each of which takes a tenth of a second for an answer.
  def test_a_slow_redis
    proxy = shaping_proxy(@redis, delay: 0.1)
    ids = push_jobs(0, 500)
    start_sidekiq("redis://#{proxy.host}:#{proxy.port}", FIBERS: 500)
    wait_until(PATIENCE, what: "all jobs") { length("done") == ids.size }
    assert_equal ids.sort, list("done").sort
    assert_equal ids.size, redis("SCARD", "runs")
    assert_empty retried
  end

  private

  def push_jobs(seconds, count = JOBS)
    ids = Array.new(count) { |i| "id-#{i}" }
    push("RecordedJob", ids.map { |id| [id, seconds] })
    ids
  end

  # Each job is done, or waits for its retry because its connection failed, or was lost on its way. Only jobs that
  # failed run again.
  def assert_accounted(ids, sidekiq)
    wait_until(PATIENCE, what: "the end of all jobs") { length("queue:default").zero? && settled?(ids) }
    lost = missing(ids)
    sleep 3 if lost.any? # retries that ran just then have ended
    lost &= missing(ids)
    runs = redis("SMEMBERS", "runs").map { |run| run[/\S+/] }.tally
    failures = sidekiq.log.scan(/: fail$/).size
    if ENV["HEDDLE_STRESS"]
      puts "#{ids.size} jobs: #{lost.size} lost, of which #{(lost - runs.keys).size} had not begun; " \
        "#{failures} failed, #{retried.size} wait for a retry, #{runs.count { |_, times| times > 1 }} ran twice"
    end
    assert_operator (lost - runs.keys).size, :<=, 3 * ON_THEIR_WAY, "never begun: #{lost.first(50)}"
    assert_empty lost & runs.keys, "a job whose retry Redis could not take returns to its queue"
    assert_operator runs.sum { |_, times| times - 1 }, :<=, failures
  end

  def missing(ids) = ids - retried - list("done")

  # Whether no job runs or will run any more: all are known, or none has ended for a while.
  def settled?(ids)
    before = length("done")
    return true if missing(ids).empty?

    sleep 3
    length("done") == before && length("queue:default").zero?
  end

  def length(name) = redis("LLEN", name)
end
