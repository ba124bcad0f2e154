# frozen_string_literal: true

require "support/servers"
require "support/sidekiq_process"

# For tests with processes of `sidekiq`: a Redis of the test's own, jobs, and their results.
module SidekiqHelpers
  # A Redis that keeps its data when it is restarted.
  class DurableRedis < Servers::Redis
    def restart
      terminate
      @ended = false
      @pid = Servers::Guard.spawn(environment, command, user: user, signal: stop_signal, log: log_path)
      wait_until_ready
    end

    private

    def command = super + %w[--appendonly yes --appendfsync always]
  end

  def setup
    super
    require "sidekiq"
    require "sidekiq/api"
    require "support/sidekiq_app"
    @processes = []
  end

  def teardown
    @processes&.each(&:stop)
    super
  end

  # Begins the code of a client that pushes jobs of sidekiq_app.rb through sidekiq-unique-jobs, see #in_client.
  #
  # @param variable [String] which jobs there are, see sidekiq_app.rb
  def self.unique_client(variable)
    <<~RUBY
      ENV["#{variable}"] = "1"
      require #{SidekiqProcess::APP.inspect}
      Sidekiq.configure_client do |config|
        config.redis = {url: ENV.fetch("REDIS_URL")}
        config.logger.level = Logger::ERROR
        config.client_middleware { |chain| chain.add(SidekiqUniqueJobs::Middleware::Client) }
      end
    RUBY
  end

  # A Redis for each test. Include it after SidekiqHelpers.
  module OwnRedis
    def setup
      super
      start_redis
    end

    def teardown
      super
      @redis&.stop
    end
  end

  private

  # Starts Redis, and has this process's Sidekiq::Client and Sidekiq::API use it.
  def start_redis(kind = Servers::Redis)
    @redis = kind.new.start
    Minitest.after_run { @redis.stop }
    use_redis(@redis.url)
    @redis
  end

  def use_redis(url)
    pool = ConnectionPool.new(size: 5, timeout: 5) do
      Sidekiq::RedisClientAdapter.new(url: url, timeout: 20, reconnect_attempts: [0.1, 0.5, 1, 2]).new_client
    end
    Thread.current[:sidekiq_redis_pool] = pool
  end

  # @return [String] what the code prints, in a process that knows Redis. The test has LoopHelpers, too.
  def in_client(code)
    ENV["REDIS_URL"], was = @redis.url, ENV["REDIS_URL"]
    assert_child(code, gems: true)
  ensure
    ENV["REDIS_URL"] = was
  end

  # @param variables [Hash] see SidekiqProcess
  def start_sidekiq(url = @redis.url, **variables)
    SidekiqProcess.new(url, **variables).tap do |process|
      @processes << process
      wait_for_start(process)
    end
  end

  # A start takes long on a busy machine: only the test's hard deadline limits it.
  def wait_for_start(process)
    until Sidekiq::ProcessSet.new.size.positive?
      flunk "sidekiq did not start:\n#{process.log}" if process.wait(0.02)
    end
  end

  def redis(*command) = Sidekiq.redis { |redis| redis.call(*command) }

  def list(name) = redis("LRANGE", name, 0, -1)

  def push(name, arguments = [[]], **item)
    arguments.each_slice(1000) do |some|
      Sidekiq::Client.push_bulk(item.transform_keys(&:to_s).merge("class" => Object.const_get(name), "args" => some))
    end
  end

  # Lets the ReleasedJobs of this group end.
  def release(group) = redis("SET", "released #{group}", 1)

  # The ids (the first argument) of the jobs in the queue.
  def queued(queue = "default")
    list("queue:#{queue}").map { |job| JSON.parse(job)["args"].first.to_s }
  end

  def retried = Sidekiq::RetrySet.new.map { |job| job.args.first.to_s }

  # Waits for the end of a process that was told to end.
  def assert_ends(process, within)
    status = process.wait(within)
    assert status, "the process still runs after #{within} s:\n#{process.log}"
    assert_predicate status, :success?, process.log
  end
end
