# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/puma_load"
require "support/puma_process"
require "heddle"

runs_on rubies: :ends, also: %i[oldest_puma]

# A Puma of two worker processes with plugin :heddle: where requests go, and what restarts and deaths of workers do.
class PumaClusterTest < Minitest::Test
  include LoopHelpers
  include PumaLoad

  mode :fiber
  hard_deadline 120

  CLUSTER = "workers 2\nworker_check_interval 1\n"

  def test_requests_wait_at_once_in_each_worker
    cluster("preload_app!") do |puma|
      bodies = assert_within(4) { Heddle::FiberPool.new(100).map(1..100) { |id| puma.get("/waits?id=#{id}").body } }
      bodies.each.with_index(1) { |body, id| assert_match(/\A#{id} after nil in \d+\z/, body) }
      assert_equal puma.workers.sort, bodies.map { |body| body[/\d+\z/].to_i }.uniq.sort
    end
  end

  # A request that computes, and lets others of its process run now and then, or not. Beside other work the idle worker
  # may get no processor within the 5 ms for which Puma has a busy one wait.
  def test_connections_go_to_the_worker_that_does_not_compute
    [true, false].each do |turns|
      cluster("wait_for_less_busy_worker 0.1") do |puma|
        computing = in_background { puma.get("/works#{"?turns=1" if turns}").body.to_i }
        wait_until(what: "the request") { File.exist?(file(puma, "works")) }
        others = Array.new(40) do
          sleep(0.005)
          in_background { puma.get("/").body[/\d+/].to_i }
        end
        wait_until(what: "the answers") { others.count(&:alive?) <= 4 }
        let_go(puma)
        assert_operator others.map(&:value).count(computing.value), :<=, 4
      end
    end
  end

  # A loop that a C library blocks begins no request. Hardly more connections wait for that than the one that Puma has
  # accepted before it could know.
  def test_connections_go_to_the_worker_whose_loop_runs
    cluster do |puma|
      File.open(file(puma, "lock"), "w") do |lock|
        lock.flock(File::LOCK_EX)
        blocked = in_background { puma.get("/locks").body }
        wait_until(what: "the request") { File.exist?(file(puma, "locks")) }
        answered = []
        others = Array.new(40) do |id|
          sleep(0.002)
          in_background { answered << puma.get("/waits?id=#{id}&count=0").body[/\A\d+/].to_i }
        end
        wait_until(what: "the answers") { answered.size >= 25 } # half of them, if Puma did not know
        lock.flock(File::LOCK_UN)
        assert_equal "locked", blocked.value
        others.each(&:value)
        assert_equal (0...40).to_a, answered.sort
      end
    end
  end

  def test_phased_restart_under_load_loses_nothing
    [->(puma) { puma.signal(:USR1) }, ->(puma) { puma.control("phased-restart") }].each do |restart|
      cluster("preload_app! false") do |puma| # with it, as is the default, Puma restarts as a whole
        assert_replaced(puma, 30) { restart.call(puma) }
        assert_equal 2, puma.written.scan(/ booted in \S+, phase: 1$/).size, puma.written
      end
    end
  end

  def test_restart_under_load_loses_nothing
    cluster("preload_app!") { |puma| assert_replaced(puma, 30) { puma.signal(:USR2) } }
  end

  # Worker 0 stops, forks the others, and serves again.
  def test_refork_under_load_loses_nothing
    cluster("fork_worker 0") do |puma|
      before = puma.workers
      under_load(puma) do |answers|
        wait_until(what: "answers") { answers.size > 50 }
        puma.control("refork")
        wait_until(30, what: "another worker") { [before, puma.workers].map(&:last).uniq.size == 2 }
        seen = answers.size
        wait_until(what: "more answers") { answers.size > seen + 50 }
      end
      assert_equal before.first, puma.workers.first
    end
  end

  def test_stops_with_requests_in_flight
    cluster do |puma|
      held = hold(puma, 40)
      puma.signal(:TERM)
      wait_until(what: "the closed port") { refused?(puma) }
      let_go(puma)
      assert_equal Array.new(40) { |id| "held #{id}" }, held.map(&:value)
      assert puma.wait
    end
  end

  # Only the requests of the one that was killed are lost.
  def test_a_worker_that_is_killed_is_replaced
    cluster do |puma|
      before = puma.workers
      Process.kill(:KILL, before.first)
      wait_until(20, what: "another worker") { (after = puma.workers).size == 2 && !after.include?(before.first) }
      wait_until(what: "answers of the other worker") { puma.get("/").body[/\d+/].to_i != before.last }
    end
  end

  def test_worker_timeout
    cluster("worker_timeout 2") do |puma|
      stopped = puma.workers.first
      Process.kill(:STOP, stopped)
      wait_until(30, what: "another worker") { (after = puma.workers).size == 2 && !after.include?(stopped) }
      assert_equal "200", puma.get("/waits").code
    end
  end

  def test_statistics_of_a_worker
    PumaProcess.run("workers 1\nsilence_single_worker_warning\nworker_check_interval 1", fibers: 4) do |puma|
      held = hold(puma, 6, began: 4)
      wait_for_backlog(puma, 2)
      wait_until(what: "the statistics") { puma.stats["running"] == 4 }
      stats = puma.stats
      assert_equal [4, 0, 4], stats.values_at("running", "pool_capacity", "max_threads")
      let_go(puma)
      assert_equal Array.new(6) { |id| "held #{id}" }, held.map(&:value)
    end
  end

  private

  def cluster(configuration = "", &block) = PumaProcess.run(CLUSTER + configuration, &block)

  def assert_replaced(puma, patience)
    before = puma.workers
    under_load(puma) do |answers|
      wait_until(what: "answers") { answers.size > 50 }
      yield
      wait_until(patience, what: "the new workers") { replaced?(puma, before) }
      seen = answers.size
      wait_until(what: "more answers") { answers.size > seen + 50 }
    end
  end

  # The control application restarts, too.
  def replaced?(puma, before)
    after = puma.workers
    after.size == 2 && (after & before).empty?
  rescue NoMethodError, TypeError, JSON::ParserError
    false
  end
end
