# frozen_string_literal: true

require "test_helper"
require "support/hosts"
require "support/servers"
require "heddle"

# A library that does not know Heddle, against a real server: COUNT requests of some fixed delay take about one delay,
# with the right answers, under every host; and the same requests in a row take one delay each, without which the
# first would prove nothing.
class UnmodifiedTestCase < Minitest::Test
  # A cold machine creates a database and installs a server within the first test.
  hard_deadline 120
  mode :fiber

  COUNT = 20
  IN_A_ROW = 3

  class << self
    # Defines one test for each host; the block gets the host.
    def on_each_host(name, hosts: Hosts::ALL, &body)
      hosts.each do |host|
        define_method(:"test_#{name.tr(" ", "_")}_on_#{host}") do
          reason = Hosts.missing(host)
          skip reason if reason
          instance_exec(host, &body)
        end
      end
    end
  end

  private

  # A server of Servers by name; skips where it is not available.
  def server(name)
    Servers.public_send(name)
  end

  # Loads ActiveRecord with Heddle's support for it, and keeps the isolation level until #leave_active_record.
  def active_record(isolation:, least: "0")
    require "active_record"
    version = ActiveRecord.version
    skip "ActiveRecord #{version} keeps connections by thread" if version < Gem::Version.new(least)
    require "heddle/active_record"
    @isolation_level = ActiveSupport::IsolatedExecutionState.isolation_level
    ActiveSupport::IsolatedExecutionState.isolation_level = isolation
  end

  def leave_active_record
    return unless @isolation_level

    ActiveRecord::Base.remove_connection
    ActiveSupport::IsolatedExecutionState.isolation_level = @isolation_level
  end

  # COUNT runs of the block at once, each of which is known to take +each+ seconds, end within +under+ seconds and
  # return +expected+.
  def assert_at_once(host, each:, under:, expected:, &work)
    assert_within(under, at_least: each * 0.95) { assert_equal expected, at_once(host, expected.size, &work) }
  end

  # Without tasks the same block takes its whole time each time.
  def assert_in_a_row(each:, expected:, &work)
    assert_within(IN_A_ROW * each * 3, at_least: IN_A_ROW * each * 0.95) do
      assert_equal expected.first(IN_A_ROW), in_a_row(IN_A_ROW, &work)
    end
  end

  def at_once(host, count, &work)
    Hosts.run(host) do |spawn|
      tasks = Array.new(count) { |i| spawn.call { work.call(i) } }
      tasks.map(&:value)
    end
  end

  def in_a_row(count, &work) = Heddle.run { Array.new(count, &work) }
end
