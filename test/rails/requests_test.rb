# frozen_string_literal: true

require "test_helper"
require "rails/application"

# What a request to Rails has set, in the block of Heddle.run, in tasks and on other threads, in an application on Puma.
class RailsRequestsTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  CALLERS_OWN = %w[action run run_in_run].freeze
  COPIES = %w[task run_in_task task_of_task pool map offload].freeze
  PLACES = (CALLERS_OWN + COPIES).freeze

  def setup
    @app = self.class.app
  end

  class << self
    # One for all tests.
    def app = @app ||= application.start.tap { |app| Minitest.after_run { app.stop } }

    private

    def application = RailsApplication.new
  end

  def test_state
    answer = @app.get("state", id: "request-7", shard: "two", user: "ann", zone: "Tokyo")
    assert_equal everywhere([["two"], "two", "writing", "ann", "Tokyo"]), answer
    PLACES.each { |place| assert_includes @app.written_log, "[request-7] seen by #{place}\n" }
  end

  # Puma's threads, and the fibers of tasks, serve one request after another.
  def test_requests_at_once
    requests = Array.new(60) { |i| {shard: %w[one two][i % 2], user: "user #{i}", zone: %w[Tokyo Berlin UTC][i % 3]} }
    queue = Thread::Queue.new(requests).close
    clients = Array.new(2 * RailsApplication::THREADS) do
      in_background do
        while (request = queue.pop)
          shard, user, zone = request.values_at(:shard, :user, :zone)
          assert_equal everywhere([[shard], shard, "writing", user, zone]), @app.get("state", **request)
        end
      end
    end
    clients.each(&:value)
    assert_equal everywhere([["one"], "one", "writing", nil, "UTC"]), @app.get("state")
    assert_empty_pool
  end

  def test_role
    answer = @app.get("reading", shard: "two")
    assert_equal everywhere([["two"], "two", "reading", nil, "UTC"]), answer.transform_values(&:first)
    answer.each { |place, (_, written)| assert_match(/\AActiveRecord::ReadOnlyError: /, written, place) }
  end

  def test_no_writes
    @app.get("preventing").each { |place, written| assert_match(/\AActiveRecord::ReadOnlyError: /, written, place) }
  end

  def test_a_locked_shard
    @app.get("another_shard").each { |place, outcome| assert_match(/cannot swap `shard`/, outcome, place) }
  end

  def test_transaction
    answer = @app.get("transaction")
    assert_equal ["one"], answer.fetch("left")
    places = answer.fetch("places")
    CALLERS_OWN.each do |place|
      own, transactions, names, found, updated = places.fetch(place)
      assert_equal [true, 1, true], [own, transactions, updated], place
      assert_equal names.last, found, place
      assert_equal 2, names.size, place
    end
    COPIES.each do |place|
      own, transactions, names, found, updated = places.fetch(place)
      assert_equal [false, 0, ["one"]], [own, transactions, names], place
      assert_match(/\AActiveRecord::RecordNotFound: .*: the code that spawned this task has/, found, place)
      assert_match(/\AHeddle::ActiveRecordSupport::UncommittedRow: Item \d+ cannot be changed here/, updated, place)
    end
    assert_empty_pool
  end

  def test_query_cache
    answer = @app.get("query_cache")
    assert_equal CALLERS_OWN.to_h { |place| [place, 0] }, answer.slice(*CALLERS_OWN)
    assert_equal COPIES.to_h { |place| [place, 1] }, answer.slice(*COPIES)
  end

  def test_what_a_run_sets_stays_and_what_a_task_sets_is_its_own
    assert_equal "set in a run", @app.get("set", user: "ann")
  end

  # Rails.event came with 8.1.
  unless Gem.loaded_specs.fetch("railties").version < Gem::Version.new("8.1")
    def test_events
      %w[events events_of_tasks].each do |action|
        @app.get(action, user: "ann").each do |place, event|
          seen = {"payload" => {"place" => place}, "tags" => {"request" => true}, "context" => {"user" => "ann"}}
          assert_equal seen, event, "#{action}: #{place}"
        end
      end
      assert_equal everywhere({}), @app.get("events").transform_values { |event| event.fetch("context") }
    end
  end

  private

  def everywhere(seen) = PLACES.to_h { |place| [place, seen] }

  # But for the connection of the request that asks. Rails ends a request behind its answer.
  def assert_empty_pool
    wait_until(what: "the ends of all requests") { @app.get("pool")["busy"] <= 1 }
    assert_equal 0, @app.get("pool")["dead"]
  end
end

# The same application where each request is a task, by plugin :heddle.
class RailsRequestsOnFibersTest < RailsRequestsTest
  mode :fiber

  class << self
    private

    def application = RailsApplication::OnFibers.new
  end

  # They take fifteen seconds one after another, and four on four threads. There are twenty connections.
  def test_a_hundred_requests_wait_at_once
    expected = Array.new(100) { |i| [["two"], "two", "writing", "user #{i}", %w[Tokyo Berlin UTC][i % 3]] }
    answers = assert_within(4, at_least: 0.15) do
      clients = expected.map do |_, shard, _, user, zone|
        in_background { @app.get("waiting", shard: shard, user: user, zone: zone) }
      end
      clients.map(&:value)
    end
    assert_equal expected, answers
    assert_empty_pool
  end
end
