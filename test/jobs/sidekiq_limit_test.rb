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
  end

  def test_no_more_jobs_at_once_than_the_limit_allows
    url = @redis.url
    job = Class.new do
      include Sidekiq::Job

      heddle_limit "sidekiq", concurrent: 2, redis: url
    end
    deadline = Heddle::SidekiqSupport::JobDeadline
    now = most = 0
    Heddle.run do
      10.times do
        Heddle.spawn do
          deadline.within(Class.new(job).new, {}) do
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
        assert_raises(Heddle::DeadlineExceeded) { deadline.within(job.new, {"deadline" => 0.05}) { flunk } }
      end
    end
    assert_equal :value, deadline.within(Class.new { include Sidekiq::Job }.new, {"deadline" => 5}) { :value }
  end

  # Middleware that releases a lock in Redis, say. It may be added before Heddle's and after it.
  def test_a_deadline_has_ended_when_middleware_cleans_up
    cleaned = []
    cleaner = Class.new do
      define_method(:call) do |*, &job|
        job.call
      ensure
        sleep 0.01
        cleaned << Heddle.remaining
      end
    end
    config = Sidekiq::Config.new
    config.server_middleware.add(cleaner)
    Heddle::SidekiqSupport::Settings.add_deadlines(config)
    config.server_middleware.add(Class.new(cleaner))
    [config.server_middleware, config.server_middleware.copy_for(config.default_capsule)].each do |chain|
      assert_raises(Heddle::DeadlineExceeded) { chain.invoke(Object.new, {"deadline" => 0.02}, "default") { sleep } }
    end
    assert_equal [nil] * 4, cleaned
  end

  # 30.seconds comes from JSON as "30".
  def test_a_deadline_as_it_comes_from_json
    deadline = Heddle::SidekiqSupport::JobDeadline
    assert_in_delta 30, deadline.within(Object.new, {"deadline" => "30"}) { Heddle.remaining }, 1
    [0, -1, "soon", true, [1]].each do |value|
      error = assert_raises(ArgumentError) { deadline.within(Object.new, {"deadline" => value}) { flunk } }
      assert_match(/a number of seconds above 0, not #{Regexp.escape(value.inspect)}/, error.message)
    end
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
    deadline = Heddle::SidekiqSupport::JobDeadline
    done = []
    Heddle.run do
      jobs.each do |job|
        Heddle.spawn do
          deadline.within(job.new, {"deadline" => 5}) { done << job.heddle_limits.map(&:name) }
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
