# frozen_string_literal: true

# The program that tests run with the command `sidekiq`: jobs that record in Redis what became of them.
#
# Variables: REDIS_URL; FIBERS or THREADS; STALL (seconds); TIMEOUT, Sidekiq's for the jobs that run when it stops;
# AT_EXIT, a file to write at the end; BEAT (seconds), in place of Sidekiq's ten between two heartbeats; DATABASE, an
# URL; TENANTS, to load ActiveSupport; UNIQUE, to load sidekiq-unique-jobs; LIBRARIES, to load this, sidekiq-throttled
# and ActiveJob; SLOT_SECONDS, after which sidekiq-throttled gives a slot to others.

at_exit { File.write(ENV["AT_EXIT"], "all is flushed") } if ENV["AT_EXIT"] # before any of Heddle's

require "securerandom"
require "heddle/sidekiq"

Sidekiq.configure_server do |config|
  config.redis = {url: ENV.fetch("REDIS_URL")}
  config[:timeout] = Integer(ENV.fetch("TIMEOUT", "25"))
  config[:poll_interval_average] = 1
  if ENV["FIBERS"]
    config.heddle(fibers: Integer(ENV["FIBERS"]), stall: ENV["STALL"]&.to_f, connections: 10)
  else
    config.concurrency = Integer(ENV.fetch("THREADS", "5"))
  end
  config.capsule("threads") do |capsule|
    capsule.queues = %w[threads]
    capsule.concurrency = 2
  end
  config.queues = %w[default]
end

# Records the beginning and the end of a job that waits.
class RecordedJob
  include Sidekiq::Job

  def perform(id, seconds = 0)
    # A set, because a client that loses its connection sends a command again.
    Sidekiq.redis { |redis| redis.call("SADD", "runs", "#{id} #{SecureRandom.hex(4)}") }
    record("began", id)
    sleep(seconds)
    record("done", id)
  ensure
    record_cleaning(id) unless seconds.zero?
  end

  private

  def record(list, id) = Sidekiq.redis { |redis| redis.call("RPUSH", list, id) }

  def record_cleaning(id)
    sleep(0.05)
    record("cleaned", id)
  end
end

# Waits until the test releases it (SidekiqHelpers#release).
class ReleasedJob
  include Sidekiq::Job

  def perform(id, group)
    Sidekiq.redis { |redis| redis.call("RPUSH", "began", id) }
    sleep(0.05) until Sidekiq.redis { |redis| redis.call("EXISTS", "released #{group}") } == 1
    Sidekiq.redis { |redis| redis.call("RPUSH", "done", id) }
  end
end

# Records that it ran.
class CountedJob
  include Sidekiq::Job

  def perform(id)
    Sidekiq.redis do |redis|
      redis.pipelined do |pipeline|
        pipeline.call("SADD", "counted", id)
        pipeline.call("INCR", "count")
      end
    end
  end
end

# Its waits have a deadline.
class HastyJob
  include Sidekiq::Job

  sidekiq_options deadline: 0.2, retry: 5

  def perform = sleep(30)
end

# Has what is left of the deadline of whoever pushes it.
class InheritingJob
  include Sidekiq::Job

  sidekiq_options deadline: 300, inherit_deadline: true, retry: 1
  sidekiq_retry_in { 1 }

  def perform(id)
    Sidekiq.redis { |redis| redis.call("RPUSH", "left #{id}", Heddle.remaining) }
    sleep(300) if id == "late"
  end
end

# Two at a time in all processes.
class LimitedJob
  include Sidekiq::Job

  heddle_limit "jobs of the tests", concurrent: 2

  def perform
    Sidekiq.redis { |redis| redis.call("RPUSH", "limited", redis.call("INCR", "limited now")) }
    sleep(0.05)
    Sidekiq.redis { |redis| redis.call("DECR", "limited now") }
  end
end

# Waits for a database, which DATABASE names.
class QueryJob
  include Sidekiq::Job

  QUERY = ENV["DATABASE"].to_s.start_with?("postgres") ? "select pg_sleep(60)" : "select sleep(60)"

  def perform = POOL.query(QUERY)

  POOL = Heddle::DB::Pool.new(ENV["DATABASE"], size: 5) if ENV["DATABASE"]
end

class HastyQueryJob < QueryJob
  sidekiq_options deadline: 0.3
end

class FailingJob
  include Sidekiq::Job

  sidekiq_options retry: 3

  def perform = raise("on purpose")
end

class DyingJob
  include Sidekiq::Job

  sidekiq_options retry: 0

  def perform = raise("for good")
end

# Kills its thread, in which others wait.
class KillingJob
  include Sidekiq::Job

  def perform = Thread.current.kill
end

# What a thread survives: its Processor is replaced.
class LeavingJob
  include Sidekiq::Job

  sidekiq_options retry: 0

  def perform(how)
    case how
    when "exit" then exit(1)
    when "exit in a task" then Heddle.spawn { exit(1) }
    when "throw" then throw(:nowhere)
    when "abort" then raise(NoMemoryError, "on purpose")
    when "interrupt" then raise(Interrupt, "on purpose")
    end
  end
end

# Its children have the loop's thread, and none of its jobs.
class ForkingJob
  include Sidekiq::Job

  def perform(how)
    pid = fork { (how == "exit!") ? exit!(3) : sleep(0.1) && exit(3) }
    Process.wait(pid)
    Sidekiq.redis { |redis| redis.call("RPUSH", "forked", $?.exitstatus) }
  end
end

# No interruption reaches it.
class ShieldedJob
  include Sidekiq::Job

  def perform(id)
    Heddle.shield(1000) do
      Sidekiq.redis { |redis| redis.call("RPUSH", "began", id) }
      loop { sleep(10) }
    end
  end
end

# Computes until there is a file of this name.
class ComputingJob
  include Sidekiq::Job

  def perform(path)
    nil until File.exist?(path)
  end
end

# Records what the job before left in its fiber, and the capsule and thread that run it.
class LocalsJob
  include Sidekiq::Job

  def perform
    left = Thread.current[:left_by_a_job].inspect
    Thread.current[:left_by_a_job] = jid
    if Fiber.respond_to?(:[]=)
      left += Fiber[:left_by_a_job].inspect
      Fiber[:left_by_a_job] = jid
    end
    sleep(0.01)
    capsule = Thread.current[:sidekiq_capsule].name
    fiber = Fiber.current_scheduler ? "scheduler" : "none"
    Sidekiq.redis { |redis| redis.call("RPUSH", "locals", "#{left} #{capsule} #{fiber}") }
  end
end

class ThreadedJob < LocalsJob
  sidekiq_options queue: "threads"
end

# Sidekiq interrupts it between two steps when it stops.
class SteppedJob
  include Sidekiq::IterableJob

  def build_enumerator(cursor:) = array_enumerator((1..100).to_a, cursor: cursor)

  def each_iteration(number)
    Sidekiq.redis { |redis| redis.call("RPUSH", "steps", number) }
    sleep(0.1)
  end
end

if ENV["BEAT"]
  require "sidekiq/launcher"

  Sidekiq::Launcher.send(:remove_const, :BEAT_PAUSE)
  Sidekiq::Launcher.const_set(:BEAT_PAUSE, Float(ENV["BEAT"]))
end

if ENV["TENANTS"] # current attributes
  require "active_support/all"
  require "active_job"
  require "sidekiq/middleware/current_attributes"

  ActiveSupport::IsolatedExecutionState.isolation_level = :fiber

  class Tenant < ActiveSupport::CurrentAttributes
    attribute :id
  end

  Sidekiq::CurrentAttributes.persist("Tenant")

  # Records its tenant before and after a wait.
  class TenantJob
    include Sidekiq::Job

    def perform(number)
      before = Tenant.id
      sleep(0.05)
      Sidekiq.redis { |redis| redis.call("RPUSH", "tenants", [number, before, Tenant.id].join(" ")) }
    end
  end
end

if ENV["UNIQUE"] || ENV["LIBRARIES"] # the gem sidekiq-unique-jobs
  require "sidekiq-unique-jobs"

  Sidekiq.configure_server do |config|
    config.client_middleware { |chain| chain.add(SidekiqUniqueJobs::Middleware::Client) }
    config.server_middleware { |chain| chain.add(SidekiqUniqueJobs::Middleware::Server) }
    SidekiqUniqueJobs::Server.configure(config)
  end

  # Its class is a lock, which it releases at its end.
  class UniqueJob
    include Sidekiq::Job

    sidekiq_options lock: :until_executed, on_conflict: :log

    def perform(number)
      sleep(0.1)
      Sidekiq.redis { |redis| redis.call("RPUSH", "unique", number) }
    end
  end
end

if ENV["LIBRARIES"] # with those that hold something for a job: slots, locks, steps
  require "sidekiq/throttled"
  require "active_job"

  ActiveSupport::IsolatedExecutionState.isolation_level = :fiber if ENV["FIBERS"]

  # Three at a time. The first time that it runs on fibers, its deadline ends it.
  class ThrottledJob < RecordedJob
    include Sidekiq::Throttled::Job

    sidekiq_options deadline: 0.5
    sidekiq_retry_in { 1 }
    sidekiq_throttle(concurrency: {limit: 3, ttl: Integer(ENV.fetch("SLOT_SECONDS", "900"))})

    def perform(id, seconds)
      record("throttled", Sidekiq.redis { |redis| redis.call("INCR", "throttled now") })
      super(id, (ENV["FIBERS"] && first?(id)) ? 30 : seconds)
    ensure
      Sidekiq.redis { |redis| redis.call("DECR", "throttled now") }
    end

    private

    def first?(id) = Sidekiq.redis { |redis| redis.call("SADD", "tried", id) } == 1
  end

  # Each is a lock of its own.
  class LockedJob < RecordedJob
    sidekiq_options lock: :until_executed, on_conflict: :log
  end

  if defined?(ActiveJob::Continuable)
    # Interrupted between two steps when its process stops.
    class StepsJob < ActiveJob::Base
      include ActiveJob::Continuable

      self.queue_adapter = :sidekiq
      self.resume_options = {wait: 0}

      def perform(id, seconds)
        step(:first) { sleep(seconds) && record("first", id) }
        step(:second) { record("done", id) }
      end

      private

      def record(list, id) = Sidekiq.redis { |redis| redis.call("RPUSH", list, id) }
    end
  end
end
