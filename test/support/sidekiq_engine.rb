# frozen_string_literal: true

require "logger"
require "sidekiq"
require "support/loop_helpers"
require "support/shaping_proxy"
require "support/sidekiq_helpers"

# For tests of the parts of heddle/sidekiq in the test's own process: a capsule, jobs, and a fetch that records.
module SidekiqEngine
  include LoopHelpers
  include ShapingProxies
  include SidekiqHelpers

  # Hands out units of work that know what became of them.
  class Fetch
    Unit = Struct.new(:job, :fetch, :state) do
      def queue_name = "default"

      def acknowledge
        sleep 0.02 # as one that talks to a server
        fetch.log << [:acknowledged, job]
        self.state = :acknowledged
      end

      def requeue = fetch.bulk_requeue([self])
    end

    class << self
      attr_accessor :jobs
    end

    attr_reader :log, :units, :most

    def initialize(_capsule)
      @jobs = self.class.jobs
      @log, @units, @most = [], [], 0
    end

    def retrieve_work
      sleep 0.005
      return sleep(0.05) && nil if @jobs.empty?

      @units << Unit.new(@jobs.shift, self, :fetched)
      @most = [@most, @units.count { |unit| unit.state == :fetched }].max
      @units.last
    end

    def bulk_requeue(units)
      units.each do |unit|
        @log << [:requeued, unit.job]
        unit.state = :requeued
      end
    end
  end

  # A job of these tests.
  class Job
    include Sidekiq::Job

    class << self
      attr_accessor :ended, :cleaned
    end

    def perform(seconds, stubborn = false)
      sleep(seconds)
      self.class.ended << jid
    ensure
      if stubborn
        Heddle.shield(5) { sleep(1.5) }
      else
        sleep(0.05)
      end
      self.class.cleaned << jid
    end
  end

  # Ends once three of them run.
  class MeetingJob
    include Sidekiq::Job

    class << self
      attr_accessor :present
    end

    def perform
      self.class.present += 1
      sleep 0.002 until self.class.present >= 3
    end
  end

  def setup
    super
    Job.ended, Job.cleaned = [], []
    MeetingJob.present = 0
    stop_without_pauses
    @config = Sidekiq::Config.new
    @config.logger = Logger.new(@output = StringIO.new)
    @capsule = @config.default_capsule
    # Other tests of this process, or gems, may have loaded it.
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber if defined?(ActiveSupport::IsolatedExecutionState)
  end

  private

  def job(number, *arguments) = job_of(Job, number, *arguments)

  def job_of(job_class, number = 0, *arguments)
    JSON.generate("class" => job_class.name, "jid" => number.to_s, "args" => arguments, "retry" => false)
  end

  # A unit of work that returns to this queue.
  def returning_unit(job, queue)
    unit = Sidekiq::BasicFetch::UnitOfWork.new("queue:default", job, @capsule)
    unit.define_singleton_method(:requeue) { queue << self }
    unit
  end

  def heddle_capsule(**options)
    @config.heddle(**options)
    @capsule
  end

  # Sidekiq has a shorter pause itself where it is developed.
  def stop_without_pauses
    require "sidekiq/component"
    require "sidekiq/manager"
    return if Sidekiq::Manager::PAUSE_TIME < 0.1

    Sidekiq::Manager.send(:remove_const, :PAUSE_TIME)
    Sidekiq::Manager.const_set(:PAUSE_TIME, 0.05)
  end

  # Runs the jobs until so many have ended, and stops with half a second for the others.
  def run_jobs(jobs, fibers:, until_ended:)
    Fetch.jobs = jobs.dup
    @config[:fetch_class] = Fetch
    @config.heddle(fibers: fibers)
    manager = Sidekiq::Manager.new(@capsule)
    manager.start
    wait_until { Job.ended.size >= until_ended }
    yield if block_given?
    manager.stop(monotonic + 0.5)
    @capsule.fetcher
  end

  def fetch_log_size(size) = wait_until { @capsule.fetcher.log.size == size }
end
