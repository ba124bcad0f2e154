# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_helpers"

# The query of a job whose deadline passes, or whose process stops, ends on the server.
class SidekiqQueryTest < Minitest::Test
  include SidekiqHelpers

  hard_deadline 120
  mode :fiber

  RUNNING = {
    postgresql: "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%'",
    mariadb: "select count(*) from information_schema.processlist where info like 'select sleep%'"
  }.freeze

  def teardown
    super
    @redis&.stop
    @connection&.close
  end

  RUNNING.each do |name, running|
    define_method(:"test_a_deadline_and_a_stop_end_queries_on_#{name}") do
      database = server(name)
      @connection = Heddle::DB.connect(database.url)
      start_redis
      sidekiq = start_sidekiq(FIBERS: 20, TIMEOUT: 1, DATABASE: database.url)
      push("HastyQueryJob", Array.new(5) { [] }) # have a deadline of 0.3 s
      wait_until(30, what: "the retries") { Sidekiq::RetrySet.new.size == 5 }
      assert_equal ["Heddle::DeadlineExceeded"], Sidekiq::RetrySet.new.map { |job| job.item["error_class"] }.uniq
      wait_until(what: "the end of the queries") { count(running).zero? }
      push("QueryJob", Array.new(5) { [] })
      wait_until(what: "the queries") { count(running) == 5 }
      sidekiq.signal(:TERM)
      assert_ends(sidekiq, 10)
      wait_until(what: "the end of the queries") { count(running).zero? }
      assert_equal 5, redis("LLEN", "queue:default")
      assert_equal 5, Sidekiq::RetrySet.new.size
    end
  end

  private

  def server(name)
    Servers.public_send(name)
  end

  def count(query) = @connection.query_value(query)
end
