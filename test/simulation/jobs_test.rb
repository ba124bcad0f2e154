# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "logger"
require "sidekiq"
require "heddle/sidekiq"
require "heddle/sidekiq/engine"

runs_on rubies: :ends

# Sidekiq's engine with Heddle's dispatcher, in front of a Redis that is slow and fails: whenever the process stops,
# each job has been done, or is in its queue, or is to be tried again, and only one of these.
class SimulatedJobsTest < Minitest::Test
  include Simulated

  # As much of Redis as the engine uses. A list that nobody reads any more keeps nothing: what was taken from it for a
  # connection that is closed meanwhile is lost, as with Redis.
  class Store
    attr_reader :list, :retried
    # The probability that a connect is refused.
    attr_accessor :refuses

    def initialize(world)
      @world = world
      @list, @retried = [], []
      @refuses = 0.05
    end

    def connection = Connection.new(self, @world)
  end

  # A client's connection.
  class Connection
    def initialize(store, world)
      @store, @world = store, world
      @number = 0
    end

    def blocking_call(_limit, command, seconds, _queues, queue, _end, _word, count)
      raise "#{command}?" unless command == "blmpop"

      exchange do |closed|
        until_late = @world.now + seconds
        sleep(0.05) while @store.list.empty? && @world.now < until_late && !closed.call
        jobs = closed.call ? [] : @store.list.pop(count).reverse
        [queue, jobs] unless jobs.empty?
      end
    end

    def rpush(_queue, jobs) = exchange { @store.list.concat([*jobs]) }

    def zadd(_name, _score, job) = exchange { @store.retried << job }

    def pipelined = yield(self)

    # The server notices.
    def close = @number += 1

    private

    # The server works in a task of its own, however the client's wait ends.
    def exchange
      number = @number
      reply = Thread::Queue.new
      raise RedisClient::CannotConnectError, "refused" if @world.draw < @store.refuses

      @world.start do
        sleep(@world.draw(0.0..0.2))
        value = yield -> { number != @number }
        sleep(@world.draw(0.0..0.2))
        reply << [value]
      end
      reply.pop.first
    end
  end

  # In place of the dispatcher's thread.
  class TaskAsThread
    def initialize(world, block)
      @ended = Thread::Queue.new
      world.start do
        block.call
      ensure
        @ended.close
      end
    end

    def join(limit = nil)
      Heddle.deadline(limit) { @ended.pop }
      self
    rescue Heddle::DeadlineExceeded
      nil
    end
  end

  # Prepended to the dispatcher.
  module TasksForThreads
    private

    def safe_thread(_name, &block)
      world = Heddle::Simulation.world
      world ? TaskAsThread.new(world, block) : super
    end
  end
  private_constant :Store, :Connection, :TaskAsThread, :TasksForThreads

  if defined?(Heddle::SidekiqSupport::Dispatcher)
    Heddle::SidekiqSupport::Dispatcher.prepend(TasksForThreads)

    class Job
      include Sidekiq::Job

      class << self
        attr_accessor :world, :done
      end

      def perform(id)
        world = self.class.world
        case world.draw(0..9)
        when 0 then sleep(world.draw(0.0..4.0)) && raise("fails")
        when 1 then Heddle.shield(1) { sleep(world.draw(0.0..0.9)) }
        when 2 then Heddle.spawn { sleep(world.draw(0.0..2.0)) }.value
        when 3 then Heddle.deadline(0.5) { sleep(world.draw(0.0..1.0)) }
        when 4 then cleaning(world)
        when 5 then nil
        else sleep(world.draw(0.0..4.0))
        end
        self.class.done << id
      end

      private

      def cleaning(world)
        sleep(world.draw(0.0..2.0))
      ensure
        sleep(world.draw(0.0..0.5))
      end
    end
  end

  def setup
    Thread.current.report_on_exception = false
  end

  def teardown
    Thread.current.report_on_exception = true
    Thread.current.thread_variable_set(:heddle_capsule, nil)
  end

  def config(store)
    config = Sidekiq::Config.new
    config.logger = Logger.new(nil)
    config.define_singleton_method(:new_shared_redis_pool) do |size, _name|
      ConnectionPool.new(size: size, timeout: 1) { store.connection }
    end
    config
  end

  def test_no_job_is_lost_or_done_twice
    totals = Hash.new(0)
    simulate(60) do |world|
      store = Store.new(world)
      Job.world, Job.done = world, []
      config = config(store)
      config.heddle(fibers: world.draw(1..8), stall: nil, connections: world.draw(2..4))
      manager = Sidekiq::Manager.new(config.default_capsule)
      manager.start
      ids = (1..world.draw(1..60)).to_a
      pusher = Heddle.spawn { push(world, store, ids) }
      sleep(world.draw(0.0..8.0))
      pusher.cancel if world.draw < 0.5
      store.refuses = 0 # Sidekiq itself loses what a Redis does not take back as the process ends
      manager.stop(Process.clock_gettime(Process::CLOCK_MONOTONIC) + world.draw(0.0..3.0))
      pusher.wait
      account(store, totals)
    end
    assert_operator totals.values.min, :>, 5, totals.to_s
  end

  def push(world, store, ids)
    @pushed = []
    ids.each do |id|
      sleep(world.draw(0.0..0.2)) if world.draw < 0.5
      store.list.unshift(JSON.generate("class" => Job.name, "jid" => id.to_s, "args" => [id], "retry" => true))
      @pushed << id
    end
  end

  def account(store, totals)
    places = {done: Job.done, queued: ids(store.list), retried: ids(store.retried)}
    counts = places.values.flatten.tally
    odd = @pushed.reject { |id| counts[id] == 1 }
    assert_empty odd.to_h { |id| [id, places.transform_values { |all| all.count(id) }] }
    places.each { |place, all| totals[place] += all.size }
  end

  def ids(jobs) = jobs.map { |job| JSON.parse(job)["args"].first }
end
