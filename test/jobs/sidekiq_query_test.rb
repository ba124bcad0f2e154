# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# The query of a job whose deadline passes, or whose process stops, ends on the server.
class SidekiqQueryTest < Minitest::Test
  include SidekiqHelpers

  hard_deadline 120
  mode :fiber

  RUNNING = "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'"

  def setup
    super
    @database = Servers.postgresql
    @connection = Heddle::DB.connect(@database.url)
    start_redis
  rescue Servers::Unavailable => error
    skip error.message
  end

  def teardown
    super
    @redis&.stop
    @connection&.close
  end

  def test_a_deadline_and_a_stop_end_queries_on_the_server
    sidekiq = start_sidekiq(FIBERS: 20, TIMEOUT: 1, DATABASE: @database.url)
    push("HastyQueryJob", Array.new(5) { [] }) # have a deadline of 0.3 s
    wait_until(30, what: "the retries") { Sidekiq::RetrySet.new.size == 5 }
    assert_equal ["Heddle::DeadlineExceeded"], Sidekiq::RetrySet.new.map { |job| job.item["error_class"] }.uniq
    wait_until(what: "the end of the queries") { running.zero? }
    push("QueryJob", Array.new(5) { [] })
    wait_until(what: "the queries") { running == 5 }
    sidekiq.signal(:TERM)
    assert_ends(sidekiq, 10)
    wait_until(what: "the end of the queries") { running.zero? }
    assert_equal 5, redis("LLEN", "queue:default")
    assert_equal 5, Sidekiq::RetrySet.new.size
  end

  private

  def running = @connection.query_value(RUNNING)
end
