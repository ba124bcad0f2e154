# frozen_string_literal: true

require "test_helper"
require "support/servers"
require "concurrent"
require "heddle/active_job"
require "heddle/executor"

# Jobs of ActiveJob with deadlines and limits, in threads and in tasks; and many of them on an executor, with few
# connections to a database.
class ActiveJobTest < Minitest::Test
  mode :fiber
  hard_deadline 120

  SECONDS = 20 # how long a query takes if nothing ends it

  # What jobs leave here.
  SEEN = Thread::Queue.new

  class BaseJob < ActiveJob::Base
    self.logger = Logger.new(nil)
    self.queue_adapter = :inline
  end

  class LateJob < BaseJob
    heddle_deadline 0.05
    after_perform { SEEN << :after_perform }

    def perform
      SEEN << Heddle.remaining
      sleep
    ensure
      SEEN << :ensure
    end
  end

  class RetriedJob < LateJob
    retry_on(Heddle::DeadlineExceeded, attempts: 2, wait: 0) { |job, error| SEEN << [job.executions, error.class] }
    before_enqueue { SEEN << Heddle.remaining } # the retry is outside of the deadline
  end

  class InheritingJob < BaseJob
    heddle_deadline 300, inherit: true

    def perform = SEEN << Heddle.remaining
  end

  class RetriedInheritingJob < InheritingJob
    retry_on(Heddle::DeadlineExceeded, attempts: 3, wait: 0) { |job, error| SEEN << [job.executions, error.message] }
  end

  class PatientJob < LateJob
    heddle_deadline nil

    def perform = SEEN << Heddle.remaining
  end

  # Its callback gives a lock back, say, also one that is added later.
  class CleaningJob < LateJob
    around_perform do |_job, block|
      block.call
    ensure
      sleep 0.01
      SEEN << [:cleaned, Heddle.remaining]
    end
  end

  class CleanJob < CleaningJob
    heddle_deadline nil

    def perform = sleep
  end

  # Has done a step when its deadline comes.
  class ContinuedJob < BaseJob
    if defined?(ActiveJob::Continuable)
      include ActiveJob::Continuable

      self.resume_options = {wait: 0}
    end
    heddle_deadline 0.1

    def perform
      step(:first) { SEEN << :first }
      step(:second) { (resumptions > 0) ? SEEN << :second : sleep }
    end
  end

  class QueryJob < BaseJob
    heddle_deadline 0.3

    def perform(query)
      ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value(query) }
    end
  end

  class WaitingJob < BaseJob
    def perform(number, query = nil)
      sleep(0.1)
      ActiveRecord::Base.connection_pool.with_connection { |connection| connection.select_value(query) } if query
      SEEN << number
    end
  end

  # Ends once all of them run.
  class CrowdJob < BaseJob
    ALL = 200

    class << self
      attr_accessor :present
    end

    def perform(number)
      self.class.present += 1
      sleep 0.01 until self.class.present >= ALL
      SEEN << number
    end
  end

  class LimitedJob < BaseJob
    heddle_deadline 5

    class << self
      attr_accessor :now, :most
    end

    def perform
      self.class.most = [self.class.most, self.class.now += 1].max
      sleep 0.01
      self.class.now -= 1
      SEEN << :performed
    end
  end

  def setup
    SEEN.clear
    @isolation_level = ActiveSupport::IsolatedExecutionState.isolation_level
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
  end

  def teardown
    @adapter&.shutdown
    ActiveRecord::Base.remove_connection if @database
    ActiveSupport::IsolatedExecutionState.isolation_level = @isolation_level
  end

  {thread: :yield_self, task: :run}.each do |where, how|
    define_method(:"test_a_deadline_ends_a_job_in_a_#{where}") do
      host = (how == :run) ? Heddle : self
      error = assert_within(2, at_least: 0.04, remeasure: 0) do
        host.public_send(how) { assert_raises(Heddle::DeadlineExceeded) { LateJob.perform_now } }
      end
      assert_kind_of Timeout::Error, error
      assert_operator SEEN.pop, :<=, 0.05
      assert_equal [:ensure], rest
    end

    define_method(:"test_the_error_is_the_jobs_in_a_#{where}") do
      adapters = ActiveJob::QueueAdapters
      RetriedJob.queue_adapter = @adapter = (how == :run) ? adapters::HeddleAdapter.new : adapters::AsyncAdapter.new
      RetriedJob.perform_later
      wait_until { SEEN.size == 7 }
      # Enqueued twice, without a deadline.
      assert_equal [nil, :ensure, nil, :ensure, [2, Heddle::DeadlineExceeded]], rest.grep_v(Float)
    end
  end

  def test_subclasses_and_callbacks
    PatientJob.perform_now
    assert_equal [nil, :after_perform], rest
    assert_raises(Heddle::DeadlineExceeded) { CleaningJob.perform_now }
    assert_equal [:ensure, [:cleaned, nil]], rest.drop(1)
  end

  # Through the payload, as in another process.
  def test_a_job_has_what_is_left_of_the_deadline_of_whoever_enqueues_it
    payload = Heddle.deadline(60) { JSON.parse(JSON.generate(InheritingJob.new.serialize)) }
    assert_in_delta Time.now.to_f + 60, payload["heddle_deadline_at"], 5
    ActiveJob::Base.execute(payload)
    assert_in_delta 60, SEEN.pop, 10
    retried = Heddle.deadline(90) { ActiveJob::Base.deserialize(payload).serialize }
    assert_equal payload["heddle_deadline_at"], retried["heddle_deadline_at"]
    refute InheritingJob.new.serialize.key?("heddle_deadline_at")
    Heddle.deadline(60) do
      refute PatientJob.new.serialize.key?("heddle_deadline_at")
      refute InheritingJob.new.set(wait: 600).serialize.key?("heddle_deadline_at"), "nobody waits for it"
    end
    Heddle.deadline(60) { InheritingJob.perform_later }
    assert_in_delta 60, SEEN.pop, 10
  end

  def test_a_job_that_comes_after_the_deadline_of_whoever_enqueued_it
    RetriedInheritingJob.queue_adapter = @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new
    payload = Heddle.deadline(60) { RetriedInheritingJob.new.serialize }
    ActiveJob::Base.execute(payload.merge("heddle_deadline_at" => Time.now.to_f - 2))
    executions, message = SEEN.pop
    assert_equal 3, executions
    assert_match(/whoever enqueued this job passed 2\.\d+ s before the job began/, message)
    assert_empty SEEN
  end

  # Sidekiq's own options, in a class of ActiveJob.
  def test_a_deadline_of_sidekiqs
    require "heddle/sidekiq"
    within = lambda do |seconds, &block|
      Heddle::SidekiqSupport::JobDeadline.within(nil, {"wrapped" => "X", "deadline" => seconds}, &block)
    end
    error = assert_raises(Heddle::DeadlineExceeded) { within.call(0.02) { CleanJob.perform_now } }
    assert_kind_of Timeout::Error, error
    assert_equal [[:cleaned, nil]], rest
    within.call(60) { 2.times { PatientJob.perform_now } }
    first, *others = rest
    assert_in_delta 60, first, 5
    assert_equal [:after_perform, nil, :after_perform], others, "the second job has no deadline"
    inherited = {"wrapped" => "X", "deadline_at" => Time.now.to_f + 60}
    Heddle::SidekiqSupport::JobDeadline.within(nil, inherited) { PatientJob.perform_now }
    assert_in_delta 60, SEEN.pop, 5
    error = assert_raises(ArgumentError) do
      Heddle::SidekiqSupport::JobDeadline.within(nil, {"deadline_at" => "soon"}) { flunk }
    end
    assert_match(/Unix time, a number, not "soon"/, error.message)
  end

  # As Rails' :async does.
  def test_the_adapter_runs_a_job_that_comes_after_its_shutdown
    PatientJob.queue_adapter = @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new
    @adapter.shutdown
    PatientJob.perform_later
    assert_equal [nil, :after_perform], rest
  end

  def test_the_adapter_refuses_isolation_by_threads
    PatientJob.queue_adapter = @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new
    ActiveSupport::IsolatedExecutionState.isolation_level = :thread
    assert_match(/isolation_level = :fiber/, assert_raises(ArgumentError) { PatientJob.perform_later }.message)
  end

  def test_a_job_of_several_steps_continues_after_its_deadline
    skip "ActiveJob::Continuable came with Rails 8.1" unless defined?(ActiveJob::Continuable)
    ContinuedJob.queue_adapter = @adapter = ActiveJob::QueueAdapters::AsyncAdapter.new
    ContinuedJob.perform_later
    wait_until { SEEN.size == 2 }
    @adapter.shutdown
    assert_equal %i[first second], rest, "each step once"
  end

  def test_invalid_deadlines_and_limits_are_refused
    assert_raises(TypeError) { Class.new(BaseJob) { heddle_deadline "30" } }
    assert_raises(ArgumentError) { Class.new(BaseJob) { heddle_deadline 0 } }
    assert_raises(ArgumentError) { Class.new(BaseJob) { heddle_limit "x" } }
    assert_equal 60.0, Class.new(BaseJob) { heddle_deadline 1.minute }.heddle_deadline_seconds
  end

  {postgresql: ["pg", "pg_sleep(#{SECONDS})", "select count(*) from pg_stat_activity where query like 'select pg_sleep%'
      and state = 'active'"],
   mariadb: ["trilogy", "sleep(#{SECONDS})", "select count(*) from information_schema.processlist
      where info like 'select sleep%'"]}.each do |name, (gem, sleep, running)|
    define_method(:"test_a_deadline_stops_the_query_on_#{name}") do
      database(name, gem, pool: 1)
      [Heddle, self].each do |host|
        assert_within(5, remeasure: 0) do
          host.public_send((host == self) ? :yield_self : :run) do
            assert_raises(Heddle::DeadlineExceeded) { QueryJob.perform_now("select #{sleep}") }
            assert_equal 1, QueryJob.perform_now("select 1") # on the pool's only connection
          end
        end
        wait_until(5) { QueryJob.perform_now(running) == 0 }
      end
    end
  end

  def test_many_jobs_of_the_adapter_wait_at_once
    @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new(fibers: CrowdJob::ALL)
    CrowdJob.queue_adapter = WaitingJob.queue_adapter = @adapter
    CrowdJob.present = 0
    CrowdJob::ALL.times { |number| CrowdJob.perform_later(number) }
    wait_until(20, what: "all jobs") { SEEN.size == CrowdJob::ALL }
    assert_equal [*0...CrowdJob::ALL], rest.sort
    WaitingJob.set(wait: 0.05).perform_later(:later)
    assert_equal :later, SEEN.pop
    # A shutdown leaves no job behind.
    50.times { |number| WaitingJob.perform_later(number) }
    @adapter.shutdown
    assert_equal 50, SEEN.size
  end

  # Jobs queue for the pool's connections in order, and hold one only while they use it.
  def test_few_connections_are_enough
    database(:postgresql, "pg", pool: 3)
    WaitingJob.queue_adapter = @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new(fibers: 200)
    assert_within(8) do
      150.times { |number| WaitingJob.perform_later(number, "select 1 from pg_sleep(0.005)") }
      150.times { SEEN.pop }
    end
    assert_operator ActiveRecord::Base.connection_pool.stat[:connections], :<=, 3
    wait_until { ActiveRecord::Base.connection_pool.stat[:busy] == 0 }
  end

  def test_load_async
    executor = Heddle::Executor.new(fibers: 4)
    require "active_record"
    ActiveRecord.async_query_executor = executor
    database(:postgresql, "pg", pool: 5)
    ActiveRecord::Base.connection_pool.with_connection do |connection|
      connection.execute("create table if not exists things (id bigint primary key); insert into things values (1)
        on conflict do nothing")
    end
    model = Class.new(ActiveRecord::Base) { self.table_name = "things" }
    model.load_schema
    session = ActiveRecord::AsynchronousQueriesTracker.run # as Rails does around a request and a job
    assert_within(3) do
      relations = Array.new(4) { |i| model.from("things, pg_sleep(0.1)").where("#{i} = #{i}").load_async }
      relations.each { |relation| assert_equal 1, relation.to_a.size }
    end
    assert_operator executor.scheduled_task_count, :>=, 4
    assert_operator executor.largest_length, :>, 1
  ensure
    ActiveRecord::AsynchronousQueriesTracker.complete(session) if session
    executor&.shutdown
    ActiveRecord.async_query_executor = nil
  end

  def test_limits_of_all_processes
    url = Servers.redis.url
    job = Class.new(LimitedJob) { heddle_limit "jobs", concurrent: 2, redis: url }
    self.class.const_set(:OfTwo, job) unless self.class.const_defined?(:OfTwo)
    job.now = job.most = 0
    job.queue_adapter = @adapter = ActiveJob::QueueAdapters::HeddleAdapter.new(fibers: 50)
    20.times { job.perform_later }
    20.times { assert_equal :performed, SEEN.pop }
    assert_equal 2, job.most
    assert_empty LimitedJob.heddle_limits
    # The wait for a place is part of the job.
    job.heddle_deadline 0.05
    Heddle::Limit.new("jobs", concurrent: 2, redis: url).then do |limit|
      limit.acquire { limit.acquire { assert_raises(Heddle::DeadlineExceeded) { job.perform_now } } }
    end
  end

  private

  def rest = Array.new(SEEN.size) { SEEN.pop }

  def database(name, gem, pool:)
    require gem
    require "active_record"
    @database = true
    url = Servers.public_send(name).url.sub(/\Amysql2?:/, "trilogy:")
    ActiveRecord::Base.establish_connection(url: url, pool: pool, checkout_timeout: 10)
  end
end
