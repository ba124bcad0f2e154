# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "heddle/db"
require "heddle/executor"
require "heddle/memcached"
require "tmpdir"

runs_on rubies: :ends

# All that hands out permits (places of pools, connections, a database's lock), among users that are cancelled and run
# out of time at any moment: there are never more users than permits, they come in the order of their requests, and each
# permit comes back.
class SimulatedPermitsTest < Minitest::Test
  include Simulated

  # The users of one kind of permit.
  class Users
    attr_reader :most, :served, :idle

    def initialize(world, limit)
      @world, @limit = world, limit
      @inside = @most = @served = @last = 0
      @waiting = {}
      @overtaken, @idle = [], []
      @since = world.now
    end

    # The block gets the number of its request; it calls {#use} while it has the permit.
    def request
      pass
      @waiting[number = @last += 1] = true
      yield number
    ensure
      pass
      @waiting.delete(number)
    end

    # A user that came earlier and still waits was overtaken, unless its turn comes within this very moment.
    def use(number)
      pass
      @waiting.delete(number)
      @most = [@most, @inside += 1].max
      @served += 1
      earlier = @waiting.keys.select { |one| one < number }
      @overtaken << [@world.now, number, earlier] unless earlier.empty?
      yield
    ensure
      pass
      @inside -= 1
    end

    # @return [Array] those that were overtaken, and had not got their turn in the moment in which they were
    def overtaken
      @overtaken.filter_map { |at, number, earlier| [at, number, earlier] if earlier.any? { |one| late?(one, at) } }
    end

    def enter_times = (@enter_times ||= {})

    private

    # Notes a time in which there was a permit, and somebody who waited for one.
    def pass
      now = @world.now
      @idle << [@since, now, @inside, @waiting.keys] if now > @since && @inside < @limit && @waiting.any?
      @since = now
    end

    def late?(number, at) = enter_times.fetch(number, at) > at
  end
  private_constant :Users

  # `take` is called with a block that is to be called with a permit.
  def contend(world, limit, ordered: true, busy: true, count: 20, again: nil, **options, &take)
    users = Users.new(world, limit)
    ended = among_interruptions(world, count, **options) do
      world.draw(1..3).times do
        users.request do |number|
          take.call(-> {
            users.enter_times[number] = world.now
            users.use(number) { sleep(span(world, 0.0..0.5)) }
          })
        end
      end
    end
    sleep 5 # for what tasks of a pool still do
    assert_operator users.most, :<=, limit
    assert_empty users.overtaken if ordered
    assert_empty users.idle if ordered && busy
    assert_all_there(world, limit, &again || take)
    @contended = (@contended || 0) + users.served
    @ended = (@ended || 0) + ended
  end

  # All permits can be used at once.
  def assert_all_there(world, limit)
    before = world.now
    tasks = Array.new(limit) { Heddle.spawn { yield(-> { sleep 10 }) } }
    tasks.each(&:value)
    assert_in_delta 10, world.now - before, 0.1
  end

  def setup
    Thread.current.report_on_exception = false # tasks of pools fail that nobody waits for any more
  end

  def teardown
    Thread.current.report_on_exception = true
    assert_operator @contended, :>, 100
    assert_operator @ended, :>, 15
  end

  # Asks for the value, so that the task's error is not the run's.
  def failed_in_time?(task)
    task.value
    false
  rescue Heddle::DeadlineExceeded, Heddle::TaskCancelled
    true
  end

  # The block runs in a task of the pool's, which goes on when its caller has been cancelled.
  def test_a_fiber_pool
    simulate(60) do |world|
      limit = world.draw(1..4)
      pool = Heddle::FiberPool.new(limit, queue: world.draw(0..3))
      contend(world, limit, deadlines: false) do |use| # they would bind the pool's tasks
        pool.spawn(&use).value
      end
      assert_equal({running: 0, queued: 0}, pool.statistics.slice(:running, :queued))
      assert_same pool, pool.close
    end
  end

  def test_a_fiber_pool_whose_tasks_are_cancelled
    simulate(60) do |world|
      limit = world.draw(1..4)
      pool = Heddle::FiberPool.new(limit, queue: world.draw(0..3))
      tasks = []
      contend(world, limit, again: ->(use) { pool.spawn(&use).value }) do |use|
        tasks << (task = pool.spawn(&use))
        task.cancel if world.draw < 0.2
        task.value
      rescue Heddle::TaskCancelled
        nil
      ensure
        task&.cancel if world.draw < 0.5
      end
      tasks.each { |task| failed_in_time?(task) }
      assert_equal({running: 0, queued: 0}, pool.statistics.slice(:running, :queued))
    end
  end

  def test_batches_of_a_fiber_pool
    simulate(60) do |world|
      limit = world.draw(1..4)
      pool = Heddle::FiberPool.new(limit, queue: world.draw(0..3))
      contend(world, limit, ordered: false, again: ->(use) { pool.map([1]) { use.call } }) do |use|
        pool.map(1..world.draw(1..3)) do |item|
          (item == 1) ? use.call : sleep(span(world, 0.0..0.2))
          raise "a block fails" if world.draw < 0.05
        end
      rescue RuntimeError
        nil
      end
      assert_equal({running: 0, queued: 0}, pool.statistics.slice(:running, :queued))
    end
  end

  def test_a_semaphore
    simulate(60) do |world|
      limit = world.draw(1..4)
      semaphore = Heddle::Semaphore.new(limit)
      contend(world, limit) do |use|
        semaphore.acquire(timeout: (span(world, 0.5..60.0) if world.draw < 0.5)) { use.call }
      rescue Heddle::DeadlineExceeded
        raise if Heddle.remaining&.zero?
      end
      assert_equal [limit, 0], [semaphore.available, semaphore.waiting]
    end
  end

  # What is lent is lent once, and each place comes back, whatever the hooks raise and however long they wait.
  def test_a_pool_of_resources
    simulate(60) do |world|
      limit = world.draw(1..4)
      lent = {}.compare_by_identity
      calm = false
      hook = lambda do |_|
        next true if calm

        sleep(span(world, 0.0..0.1)) if world.draw < 0.2
        raise IOError if world.draw < 0.05

        world.draw < 0.9
      end
      pool = Heddle::ResourcePool.new(size: limit, timeout: span(world, 0.5..60.0), idle: world.draw(0.5..5.0),
        max_lifetime: world.draw(0.5..5.0), check: hook, reset: hook, close: hook) do
        hook.call(nil)
        Object.new
      end
      contend(world, limit, ordered: false, again: ->(use) { (calm = true) && pool.with { use.call } }) do |use|
        pool.with do |resource|
          flunk "it is lent twice" if lent[resource]
          lent[resource] = true
          use.call
          pool.discard(resource) if world.draw < 0.1
        ensure
          lent.delete(resource)
        end
      rescue IOError, Heddle::PoolTimeout
        nil
      end
      stats = pool.stats
      assert_equal [stats[:idle], 0], stats.values_at(:open, :waiting)
    end
  end

  def test_a_pool_of_connections
    simulate(60) do |world|
      limit = world.draw(1..4)
      pool = Heddle::DB::Pool.new("sqlite::memory:", size: limit, checkout_timeout: span(world, 0.5..60.0),
        idle: world.draw(0.5..5.0), max_lifetime: world.draw(0.5..5.0))
      contend(world, limit) do |use|
        pool.with do |db|
          use.call
          db.query_value("select 1") if world.draw < 0.3
          db.close if world.draw < 0.1
        end
      rescue Heddle::DB::PoolTimeout
        nil
      end
      stats = pool.stats
      assert_equal 0, stats[:waiting]
      assert_equal stats[:connections], stats[:free]
      pool.close
      assert_equal({connections: 0, free: 0, waiting: 0}, pool.stats)
    end
  end

  # Writers of one database stand in a line.
  def test_sqlites_lock
    Dir.mktmpdir("heddle", File.directory?("/dev/shm") ? "/dev/shm" : nil) do |folder|
      turn = 0
      simulate(30) do |world|
        url = "sqlite://#{folder}/#{turn += 1}.db"
        all = Array.new(24) { Heddle::DB.connect(url, timeout: nil, synchronous: :off) }
        all.first.exec("create table t (n integer)")
        contend(world, 1, busy: false) do |use| # the first in the line naps
          db = all.pop
          db.transaction do
            use.call
            db.exec("insert into t values (1)")
          end
        ensure
          all.push(db) if db
        end
        all.each(&:close)
      end
    end
  end

  # Each accepted block runs once, also when who posted it was cancelled.
  def test_an_executor
    simulate(60) do |world|
      limit = world.draw(1..4)
      executor = Heddle::Executor.new(fibers: limit, idletime: world.draw(0.1..5.0))
      posted = Hash.new(0)
      contend(world, limit) do |use|
        done = Thread::Queue.new
        executor.post(posted.size) do |number|
          posted[number] += 1
          use.call
        ensure
          done << true
        end
        done.pop
      end
      executor.shutdown
      assert executor.wait_for_termination(60)
      assert_equal executor.scheduled_task_count, executor.completed_task_count
    end
  end

  # Connections to a memcached server: each user has one for the time of its request.
  def test_memcacheds_connections
    simulate(60) do |world|
      limit = world.draw(1..3)
      asked, answer_after = nil, 0.0..0.5
      world.host("cache.example") do |host|
        host.tcp(11_211) do |socket|
          while (line = socket.gets)
            next socket.write("VERSION 1.6.40\r\n") if line.start_with?("version")

            asked ||= Users.new(world, limit)
            asked.use(0) { sleep(span(world, answer_after)) }
            socket.write("EN\r\n")
          end
        end
      end
      cache = Heddle::Memcached.new("cache.example", timeout: 30, pool: limit)
      users = Users.new(world, limit)
      ended = among_interruptions(world, 20) do
        world.draw(1..3).times { users.request { cache.get("key") } }
      end
      assert_operator ended, :>, 0
      answer_after = 10.0..10.0
      before = world.now
      Array.new(limit) { Heddle.spawn { cache.get("key") } }.each(&:value)
      assert_in_delta 10, world.now - before, 0.1
      before = world.now
      Array.new(limit + 1) { Heddle.spawn { cache.get("key") } }.each(&:value)
      assert_in_delta 20, world.now - before, 0.1
      @contended = (@contended || 0) + asked.served
      @ended = (@ended || 0) + ended
    end
  end
end
