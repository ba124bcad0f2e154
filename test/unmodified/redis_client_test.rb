# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

class UnmodifiedRedisClientTest < UnmodifiedTestCase
  DELAY = 0.2
  PATIENCE = 10

  def setup
    super
    require "redis-client"
    @server = server(:redis)
    @expected = Array.new(COUNT) { |i| ["list:#{i}", "value #{i}"] }
  end

  on_each_host "twenty blocking pops that time out" do |host|
    assert_at_once(host, each: DELAY, under: 1.0, expected: [nil] * COUNT) { |i| pop(i, DELAY) }
  end

  def test_the_same_pops_in_a_row
    assert_in_a_row(each: DELAY, expected: [nil] * COUNT) { |i| pop(i, DELAY) }
  end

  # No clock here: the values are pushed once the server counts twenty waiting clients.
  on_each_host "twenty blocking pops until another task pushes" do |host|
    popped = Hosts.run(host) do |spawn|
      tasks = Array.new(COUNT) { |i| spawn.call { pop(i, PATIENCE) } }
      spawn.call { push_when_all_wait }.value
      tasks.map(&:value)
    end
    assert_equal @expected, popped
  end

  private

  def pop(i, seconds)
    redis = connect
    redis.blocking_call(PATIENCE, "BLPOP", "list:#{i}", seconds)
  ensure
    redis&.close
  end

  def push_when_all_wait
    redis = connect
    wait_until(PATIENCE, what: "the wait of all #{COUNT} tasks at once") do
      redis.call("INFO", "clients")[/^blocked_clients:(\d+)/, 1].to_i == COUNT
    end
    @expected.each { |list, value| redis.call("RPUSH", list, value) }
  ensure
    redis&.close
  end

  def connect = RedisClient.new(host: "localhost", port: @server.port, timeout: PATIENCE)
end
