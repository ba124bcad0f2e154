# frozen_string_literal: true

require "test_helper"
require "support/servers"
require "heddle"

# Sidekiq's jobs whose class has a limit: the server middleware waits for a place.
class SidekiqLimitTest < Minitest::Test
  mode :fiber

  def setup
    require "sidekiq"
    require "heddle/sidekiq"
    @redis = Servers.redis
  rescue LoadError => error
    raise unless error.path == "sidekiq"

    skip "the gem sidekiq is not installed (gem install sidekiq)"
  rescue Servers::Unavailable => error
    skip error.message
  end

  def test_no_more_jobs_at_once_than_the_limit_allows
    url = @redis.url
    job = Class.new do
      include Sidekiq::Job

      heddle_limit "sidekiq", concurrent: 2, redis: url
    end
    middleware = Heddle::SidekiqSupport::JobDeadline.new
    now = most = 0
    Heddle.run do
      10.times do
        Heddle.spawn do
          middleware.call(Class.new(job).new, {}, "default") do
            most = [most, now += 1].max
            sleep 0.005
            now -= 1
          end
        end
      end
    end
    assert_equal 2, most
    limit = Heddle::Limit.new("sidekiq", concurrent: 2, redis: url)
    limit.acquire do
      limit.acquire do
        assert_raises(Heddle::DeadlineExceeded) { middleware.call(job.new, {"deadline" => 0.05}, "default") { flunk } }
      end
    end
    assert_equal :value, middleware.call(Class.new { include Sidekiq::Job }.new, {"deadline" => 5}, "q") { :value }
  end

  # Each would get the place for which the other waits, and wait for the other's.
  def test_jobs_that_name_their_limits_in_different_orders
    names, url = %w[b a], @redis.url
    jobs = [names, names.reverse].map do |order|
      Class.new do
        include Sidekiq::Job

        heddle_limit "0", per_second: 1000, redis: url
        order.each { |name| heddle_limit name, concurrent: 1, redis: url }
      end
    end
    middleware = Heddle::SidekiqSupport::JobDeadline.new
    done = []
    Heddle.run do
      jobs.each do |job|
        Heddle.spawn do
          middleware.call(job.new, {"deadline" => 5}, "default") { done << job.heddle_limits.map(&:name) }
        end
      end
    end
    assert_equal [%w[a b 0]] * 2, done
  end

  # Jobs that each held one place of a limit, and waited for another one of the same limit, would wait for ever.
  def test_a_limit_of_a_subclass_replaces_that_of_the_same_name
    job = Class.new do
      include Sidekiq::Job

      heddle_limit "first", concurrent: 5
      heddle_limit "second", concurrent: 5
    end
    subclass = Class.new(job) { heddle_limit "first", concurrent: 1 }
    assert_equal [["first", 1], ["second", 5]], subclass.heddle_limits.map { |limit| [limit.name, limit.concurrent] }
    assert_equal [5, 5], job.heddle_limits.map(&:concurrent)
  end
end
