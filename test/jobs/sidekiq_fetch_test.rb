# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_engine"

# Which jobs are fetched for a capsule with fibers, and how its fibers share connections to Redis.
class SidekiqFetchTest < Minitest::Test
  include SidekiqEngine

  hard_deadline 60
  mode :fiber

  def test_a_fetch_class_of_the_program_never_holds_more_jobs_than_can_run
    jobs = Array.new(40) { |i| job(i, 0.05) }
    fetch = run_jobs(jobs, fibers: 5, until_ended: 40)
    assert_equal 40, Job.ended.uniq.size
    assert_equal 5, fetch.most
    assert_equal jobs.map { |job| [:acknowledged, job] }.sort, fetch.log.sort
  end

  # The tasks that use the connections are the parent's.
  def test_a_child_of_fork_gets_a_connection_while_all_are_in_use
    capsule = heddle_capsule(fibers: 5, connections: 2)
    Heddle.run do
      users = Array.new(2) { Heddle.spawn { capsule.redis { sleep } } }
      child = fork do
        capsule.redis_pool.with(timeout: 0.5) { exit!(0) }
      rescue ConnectionPool::TimeoutError
        exit!(1)
      end
      Process.wait(child)
      users.each(&:cancel)
    end
    assert_predicate $?, :success?
  end

  def test_fibers_share_connections
    start_redis
    @config.redis = {url: @redis.url}
    @config.heddle(fibers: 60, connections: 5)
    pool = @capsule.local_redis_pool
    assert_equal 60, pool.size, "as many may use it; Sidekiq refuses smaller pools"
    most = now = 0
    Heddle.run do
      60.times do
        Heddle.spawn do
          @capsule.redis do |connection|
            most = [most, now += 1].max
            @capsule.redis { |same| assert_same connection, same }
            connection.call("PING")
            sleep 0.01
            now -= 1
          end
        end
      end
    end
    assert_equal 5, most
  ensure
    @redis&.stop
  end

  # One that gives its connection back, and wants another one at once, is behind those who wait.
  def test_connections_are_given_in_order
    @config.heddle(fibers: 9, connections: 2)
    pool, order = @capsule.local_redis_pool, []
    Heddle.run do
      greedy = Array.new(2) do
        Heddle.spawn do
          until order.size >= 5
            pool.with { sleep 0.001 }
          end
        end
      end
      Array.new(5) { |i| Heddle.spawn { pool.with { order << i } } }.each { |task| task.wait(10) }
      greedy.each(&:cancel)
    end
    assert_equal [0, 1, 2, 3, 4], order
  end

  # It has left the line, or its turn goes on to the next.
  def test_a_fiber_that_is_cancelled_in_the_line_takes_no_connection
    @config.heddle(fibers: 9, connections: 2)
    pool = @capsule.local_redis_pool
    Heddle.run do
      users = Array.new(2) { Heddle.spawn { pool.with { sleep } } }
      first, second = Array.new(2) { Heddle.spawn { pool.with { :mine } } }
      users.each(&:cancel)
      first.cancel # its turn is on its way
      assert_equal :mine, second.value
      assert_equal(2, Array.new(2) { Heddle.spawn { pool.with(timeout: 5) { sleep 0.01 } } }.count(&:wait))
    end
  end

  def test_fetches_leave_one_of_two_connections_to_the_jobs
    start_redis
    @config.redis = {url: @redis.url}
    manager = Sidekiq::Manager.new(heddle_capsule(fibers: 10, connections: 2))
    manager.start
    wait_until(what: "a fetch") { redis("CLIENT", "LIST").match?(/ flags=b/) }
    assert_equal 1, @capsule.heddle_dispatcher.instance_variable_get(:@fetching)
    manager.stop(monotonic)
    @config.redis = {url: @redis.url, size: 1}
    @capsule.instance_variable_set(:@redis, nil)
    assert_match(/size of 1 connection/, assert_raises(ArgumentError) { Sidekiq::Manager.new(@capsule) }.message)
  ensure
    @redis&.stop
  end

  def test_tasks_of_a_job_use_its_capsules_connections
    @config.heddle(fibers: 3)
    pools = Thread.new do
      Thread.current.thread_variable_set(:heddle_capsule, @capsule)
      Heddle.run { Heddle.spawn { @config.redis_pool }.value }
    end.value
    assert_same @capsule.local_redis_pool, pools
    refute_same @capsule.local_redis_pool, @config.redis_pool
  end

  def test_no_more_connections_than_fibers
    @config.heddle(fibers: 3, connections: 5)
    assert_equal 3, @capsule.local_redis_pool.size
  end

  def test_paused_queues_are_not_asked
    @config.heddle(fibers: 3)
    @capsule.fetcher.define_singleton_method(:queues_cmd) { [] }
    @capsule.fetcher.define_singleton_method(:sleep) { |seconds| seconds }
    @capsule.heddle_dispatcher = Heddle.const_get(:SidekiqSupport)::Dispatcher.new(@capsule)
    3.times { @capsule.heddle_dispatcher.add(nil) }
    assert_nil @capsule.fetcher.retrieve_work
  end

  def test_a_redis_that_forbids_batches
    start_redis
    @config.redis = {url: @redis.url}
    @config.heddle(fibers: 3)
    redis("ACL", "SETUSER", "default", "-blmpop")
    @capsule.heddle_dispatcher = Heddle.const_get(:SidekiqSupport)::Dispatcher.new(@capsule)
    3.times { @capsule.heddle_dispatcher.add(nil) }
    redis("LPUSH", "queue:default", "a job")
    assert_equal "a job", @capsule.fetcher.retrieve_work.job
  ensure
    @redis&.stop
  end

  # Redis has taken the job from its queue, and the answer is on its way.
  def test_a_fetch_that_is_cancelled_loses_no_job
    start_redis
    proxy = shaping_proxy(@redis, delay: 0.1)
    @config.redis = {url: "redis://#{proxy.host}:#{proxy.port}"}
    @config.heddle(fibers: 3)
    @capsule.heddle_dispatcher = Heddle.const_get(:SidekiqSupport)::Dispatcher.new(@capsule)
    3.times { @capsule.heddle_dispatcher.add(nil) }
    client, unit = RedisClient.new(url: @redis.url), nil
    Heddle.run do
      fetch = Heddle.spawn { unit = @capsule.fetcher.retrieve_work }
      wait_until { client.call("CLIENT", "LIST").match?(/ flags=b/) }
      client.call("LPUSH", "queue:default", "a job")
      fetch.cancel
      fetch.wait(5)
    end
    assert_equal ["a job"], [unit, *@capsule.heddle_dispatcher.take_homeless(0)].compact.map(&:job)
  ensure
    client&.close
    @redis&.stop
  end

  def test_a_fiber_that_gets_no_connection_fails_in_the_end
    @config.heddle(fibers: 3, connections: 2)
    pool = @capsule.local_redis_pool
    Heddle.run do
      users = Array.new(2) { Heddle.spawn { pool.with { sleep } } }
      error = assert_raises(ConnectionPool::TimeoutError) { pool.with(timeout: 0.05) { flunk } }
      assert_match(/one of the 2 connections/, error.message)
      users.first.cancel
      assert_equal :mine, pool.with(timeout: 5) { :mine }, "once one is free"
      users.last.cancel
    end
  end

  # Neither while others end, nor while another fetch is under way: no job has to return to its queue.
  def test_no_job_is_fetched_that_could_not_start
    start_redis
    @config.redis = {url: @redis.url}
    @config.heddle(fibers: 6)
    ids = Array.new(150) { |i| "only-#{i}" }
    redis("LPUSH", "queue:default", *ids.map.with_index { |id, i| job(id, i % 7 * 0.004) })
    returned = []
    manager = Sidekiq::Manager.new(@capsule)
    @capsule.fetcher.define_singleton_method(:bulk_requeue) { |units| returned.concat(units) && super(units) }
    @capsule.heddle_dispatcher.define_singleton_method(:give_back) { |unit| returned << unit && super(unit) }
    manager.start
    wait_until(20) { Job.cleaned.size >= ids.size }
    manager.stop(monotonic + 0.5)
    assert_equal ids.sort, Job.ended.sort
    assert_empty returned.map(&:job)
  ensure
    @redis&.stop
  end

  def test_batches_only_where_the_fetch_is_sidekiqs_own
    @config.heddle(fibers: 3)
    assert_equal "Heddle::SidekiqSupport::BatchFetch", @capsule.fetcher.class.name
    other = Sidekiq::Config.new
    other[:fetch_class] = Fetch
    Fetch.jobs = []
    other.heddle(fibers: 3)
    assert_instance_of Fetch, other.default_capsule.fetcher
    assert_equal "Sidekiq::BasicFetch", in_a_patched_process
  end

  private

  def in_a_patched_process
    assert_child(<<~RUBY, gems: true).strip
      require "heddle/sidekiq"
      config = Sidekiq::Config.new
      config.heddle(fibers: 2)
      Sidekiq::BasicFetch.prepend(Module.new { def retrieve_work = super })
      puts config.default_capsule.fetcher.class
    RUBY
  end
end
