# frozen_string_literal: true

require "test_helper"
require "support/sidekiq_engine"

# How jobs on fibers begin and end: alone, by an error of others, and when the process stops.
class SidekiqEngineTest < Minitest::Test
  include SidekiqEngine

  hard_deadline 60
  mode :fiber

  # Kills the thread of its capsule.
  class KillingJob
    include Sidekiq::Job

    def perform = Thread.current.kill
  end

  # Has a task kill the thread.
  class KillingByTaskJob
    include Sidekiq::Job

    KILL = -> { sleep(0.05) && Thread.exit }
    POOL = Heddle::FiberPool.new(2)

    def perform(way)
      send(way)
      sleep 60
    end

    private

    def task_of_a_task = Heddle.spawn { Heddle.spawn(&KILL) }

    def map = Heddle.map([1, 2]) { KILL.call }

    def pool = POOL.spawn(&KILL)

    def run = Heddle.run { Heddle.spawn(&KILL).value }

    def enumerator = Enumerator.new { |yielder| yielder << Heddle.spawn(&KILL).value }.next
  end

  # Gives the others a turn, again and again.
  class BusyJob
    include Sidekiq::Job

    def perform = loop { sleep 0 }
  end

  # Leaves a task behind that ends the run of all.
  class StrayJob
    include Sidekiq::Job

    def perform = Heddle.spawn { raise NoMemoryError, "of a task that a job left" }
  end

  def test_arguments
    [{fibers: 0}, {fibers: 1.5}, {fibers: nil}, {fibers: 5, stall: 0}, {fibers: 5, stall: "1"},
      {fibers: 5, connections: 1}].each do |options|
      error = assert_raises(ArgumentError, options.inspect) { @config.heddle(**options) }
      assert_match(/\Aheddle: (fibers|stall|connections) must be/, error.message)
    end
    @config.heddle(fibers: 7, stall: nil)
    assert_equal 7, @config.concurrency
    refute_predicate @config.capsule("other"), :heddle?
  end

  def test_only_capsules_with_fibers_get_other_managers
    @config.heddle(fibers: 3)
    manager = Sidekiq::Manager.new(@capsule)
    assert_equal 3, manager.workers.size
    assert_equal ["Heddle::SidekiqSupport::FiberProcessor"], manager.workers.map { |worker| worker.class.name }.uniq
    other = Sidekiq::Manager.new(@config.capsule("other"))
    assert_equal [Sidekiq::Manager, Sidekiq::Processor], [other.class, other.workers.first.class]
  end

  def test_a_stop_requeues_each_unfinished_job_once_and_after_its_clean_up
    jobs = Array.new(3) { |i| job(i, 60) } + Array.new(3) { |i| job(10 + i, 0.1) }
    fetch = run_jobs(jobs, fibers: 6, until_ended: 3)
    assert_equal jobs.first(3).map { |job| [:requeued, job] }.sort, fetch.log.select { |what,| what == :requeued }.sort
    assert_equal 3, fetch.log.count { |what,| what == :acknowledged }
    assert_equal %w[0 1 10 11 12 2], Job.cleaned.sort
  end

  # Ends in its own way once the process stops, and records that its clean-up ran.
  class EndingJob
    include Sidekiq::Job

    class << self
      attr_accessor :began, :cleaned, :stopping
    end

    def perform(way)
      self.class.began << way
      send(way)
    ensure
      sleep 0.01 # the clean-up is not interrupted again
      self.class.cleaned << way
    end

    private

    def returns = stops

    def fails = stops && raise("on purpose")

    # A request that is given up for a faster one, and whose clean-up raises.
    def fails_by_its_sub_task
      Heddle.run do
        slow = Heddle.spawn do
          sleep 60
        ensure
          raise IOError, "closed" if $!
        end
        stops
        slow.cancel
        slow.value
      end
    end

    def is_cancelled_by_itself = stops && raise(Heddle::Cancellation, "of a future that was killed")

    def waits = sleep(60)

    def goes_on
      sleep 60
    rescue Exception # rubocop:disable Lint/RescueException -- as some reporters of errors do
      nil
    end

    def fails_when_it_is_interrupted
      sleep 60
    ensure
      raise "as it cleaned up"
    end

    def fails_of_something_else
      sleep 60
    rescue Exception # rubocop:disable Lint/RescueException -- and forgets it
      raise RuntimeError.new("of something else"), cause: nil
    end

    def waits_in_a_mask
      Thread.handle_interrupt(Sidekiq::Shutdown => :never) do
        stops
        sleep 0.7 # meanwhile the others are interrupted
        self.class.cleaned << "masked"
      end
      sleep 60
    end

    def computes
      stops
      sleep 0.2 # the others see the stop
      loop {}
    end

    def computes_in_a_task = Heddle.spawn { computes }.value

    def computes_in_a_map = Heddle.map([1, 2]) { computes }

    def computes_in_a_run = Heddle.run { Heddle.spawn { computes } && computes }

    def computes_in_a_task_that_it_leaves
      Heddle.spawn { computes }
      waits
    end

    def stops
      sleep 0.002 until self.class.stopping
      true
    end
  end

  WAYS = {returns: :acknowledged, fails: :retried, fails_by_its_sub_task: :retried, is_cancelled_by_itself: :retried,
          waits: :requeued, goes_on: :requeued, fails_when_it_is_interrupted: :requeued,
          fails_of_something_else: :retried, waits_in_a_mask: :requeued, computes: :requeued}.freeze

  def test_each_way_in_which_a_job_can_end_while_its_process_stops
    assert_stops(WAYS, [:masked])
  end

  %i[computes_in_a_task computes_in_a_map computes_in_a_run computes_in_a_task_that_it_leaves].each do |way|
    define_method(:"test_a_job_that_#{way}_keeps_none_from_cleaning_up") do
      assert_stops({way => :requeued, :waits => :requeued})
    end
  end

  # Another program pushed the same job twice, without an id.
  def test_a_stop_requeues_each_of_two_equal_jobs
    fetch = run_jobs([job(1, 60), job(1, 60), job(2, 0.1)], fibers: 3, until_ended: 1)
    assert_equal [[:requeued, job(1, 60)]] * 2, fetch.log.select { |what,| what == :requeued }
  end

  # The interruption comes between the fetch and the first line of the job.
  def test_a_job_that_is_interrupted_before_it_begins_returns_to_its_queue
    @config.heddle(fibers: 1)
    processor = Sidekiq::Processor.new(@capsule) {}
    unit = Fetch::Unit.new(job(1, 0))
    processor.kill
    Heddle.run { processor.send(:process, unit) }
    assert_empty Job.ended
    assert_equal [unit], @capsule.heddle_dispatcher.take_homeless(0)
  end

  # As Sidekiq's own tests do.
  def test_a_processor_that_is_asked_to_process_a_job_outside_of_any_task
    processor = Sidekiq::Processor.new(heddle_capsule(fibers: 2))
    unit = Fetch::Unit.new(job(1, 0), Fetch.new(@capsule))
    processor.send(:process, unit)
    assert_equal ["1"], Job.ended
  end

  # Records what the job before left in its Fiber storage.
  class StorageJob
    include Sidekiq::Job

    class << self
      attr_accessor :seen
    end

    def perform
      self.class.seen << Fiber[:left_by_a_job]
      Fiber[:left_by_a_job] = jid
      sleep 0.02
    end
  end

  # One job ends while another one, fetched together with a third, is on its way.
  def test_a_job_inherits_nothing_of_one_that_ends
    skip "no Fiber storage before Ruby 3.2" unless Fiber.respond_to?(:[])
    StorageJob.seen = seen = []
    jobs = %w[first kept last].map { |jid| JSON.generate("class" => StorageJob.name, "jid" => jid, "args" => []) }
    @config.heddle(fibers: 4)
    first, kept, last = jobs.map { |job| Sidekiq::BasicFetch::UnitOfWork.new("queue:default", job, @capsule) }
    fetches, capsule = 0, @capsule
    @capsule.fetcher.define_singleton_method(:retrieve_work) do
      case fetches += 1
      when 1 then first
      when 2
        sleep 0.001 while seen.empty?
        capsule.heddle_dispatcher.keep([kept])
        sleep 0.05
        last
      else sleep(0.05) && nil
      end
    end
    manager = Sidekiq::Manager.new(@capsule)
    manager.start
    wait_until { seen.size == 3 }
    assert_equal [nil, nil, nil], seen
  ensure
    manager&.stop(monotonic + 0.5)
  end

  # It starts before the others of its batch: one that waits for its turn, and one whose processor fetched them all.
  def test_a_job_that_kills_its_thread_loses_no_other_of_its_batch
    queue, returned, batches = [], [], 1
    killing, *others = batch = [job_of(KillingJob), job(1, 0), job(2, 0)].map { |job| returning_unit(job, queue) }
    capsule = heddle_capsule(fibers: 4)
    capsule.fetcher.define_singleton_method(:bulk_requeue) { |units| returned.concat(units) }
    capsule.fetcher.define_singleton_method(:retrieve_work) do
      next queue.shift || (sleep(0.01) && nil) if (batches -= 1) != 0

      capsule.heddle_dispatcher.keep(batch.first(2))
      batch.last
    end
    manager = Sidekiq::Manager.new(capsule)
    manager.start
    wait_until(what: "the others") { Job.ended.size == others.size }
    # Nor is a fiber lost, but that of the job, which returns to its queue at the end.
    queue.concat(Array.new(3) { returning_unit(job_of(MeetingJob), queue) })
    wait_until(what: "three jobs at once") { MeetingJob.present == 3 }
    manager.stop(monotonic)
    assert_equal %w[1 2], Job.ended.sort
    assert_equal [killing], returned
  end

  # It must not return at once, and kill the thread for ever.
  %w[task_of_a_task map pool run enumerator].each do |way|
    define_method(:"test_a_job_whose_task_kills_the_thread_returns_when_the_process_stops_#{way}") do
      assert_withheld(job_of(KillingByTaskJob, way, way))
    end
  end

  # Whichever of the cancelled tasks has its turn first.
  def test_jobs_return_to_their_queue_when_an_error_ends_the_run_of_all
    busy = Array.new(3) { |i| job_of(BusyJob, i) }
    Fetch.jobs = [*busy, job_of(StrayJob)]
    @config[:fetch_class] = Fetch
    manager = Sidekiq::Manager.new(heddle_capsule(fibers: 5))
    fetch = @capsule.fetcher
    _, reported = capture_io do
      manager.start
      wait_until(what: "the jobs' return") { fetch.log.size == 4 }
      manager.stop(monotonic)
    end
    assert_includes reported, "of a task that a job left"
    assert_equal busy, fetch.log.filter_map { |what, job| job if what == :requeued }.sort
  end

  # Its place is taken by another processor, which the manager adds while it still starts the first ones.
  def test_a_job_that_fails_while_the_capsule_starts
    failing = JSON.generate("class" => "NoSuchJob", "jid" => "f", "args" => [], "retry" => false)
    Fetch.jobs = [failing, failing]
    @config[:fetch_class] = Fetch
    manager = Sidekiq::Manager.new(heddle_capsule(fibers: 5))
    fetch = @capsule.fetcher
    manager.workers.first.define_singleton_method(:start) do
      super()
      sleep 0.002 while fetch.log.empty?
      sleep 0.02 # the processor has ended, or waits for the manager
    end
    manager.start
    wait_until { fetch.log.size == 2 }
    wait_until { manager.workers.size == 5 && manager.workers.all?(&:thread) }
    refute_predicate @capsule.heddle_dispatcher, :killed?
  ensure
    manager&.stop(monotonic)
  end

  # The answer of Redis is on its way while the process stops.
  def test_a_failed_job_whose_retry_is_being_stored_does_not_return_to_its_queue
    stored = []
    connection = Object.new
    connection.define_singleton_method(:zadd) { |*retry_at_and_job| sleep(0.6) if stored << retry_at_and_job.last }
    heddle_capsule(fibers: 1).define_singleton_method(:redis) { |&block| block.call(connection) }
    Fetch.jobs = [JSON.generate("class" => "NoSuchJob", "jid" => "f", "args" => [], "retry" => 1)]
    @config[:fetch_class] = Fetch
    manager = Sidekiq::Manager.new(@capsule)
    manager.start
    wait_until { stored.any? }
    manager.stop(monotonic)
    assert_equal [:acknowledged], @capsule.fetcher.log.map(&:first)
  end

  def test_a_stop_does_not_wait_for_jobs_that_it_has_abandoned
    usual, abandoned = [false, true].map do |abandons|
      manager = Sidekiq::Manager.new(heddle_capsule(fibers: 1))
      manager.workers.clear
      manager.send(:abandon, []) if abandons
      patience = nil
      @capsule.heddle_dispatcher.define_singleton_method(:take_homeless) { |seconds| (patience = seconds) && [] }
      manager.stop(monotonic)
      patience
    end
    assert_operator abandoned, :<, usual / 10.0
  end

  def test_a_stall_that_cannot_be_reported
    @config[:backtrace_cleaner] = ->(_) { raise "on purpose" }
    Sidekiq::Processor.new(heddle_capsule(fibers: 1)) {}
    @capsule.heddle_dispatcher.send(:report_stall, nil, 1.0, ["a line"])
    assert_includes @output.string, "on purpose"
  end

  # Redis goes away while the process is told to be quiet.
  def test_a_fetched_job_that_cannot_return_to_its_queue_is_kept
    @config.heddle(fibers: 1)
    unit = Sidekiq::BasicFetch::UnitOfWork.new("queue:default", job(1, 0), @capsule)
    unit.define_singleton_method(:requeue) { raise RedisClient::CannotConnectError, "on purpose" }
    @capsule.fetcher.define_singleton_method(:retrieve_work) { unit }
    processor = Sidekiq::Processor.new(@capsule) {}
    processor.terminate
    assert_nil(Heddle.run { processor.send(:fetch) })
    assert_equal [unit], @capsule.heddle_dispatcher.take_homeless(0)
  end

  def test_a_job_returns_to_its_queue_once_although_the_process_stops_meanwhile
    @config.heddle(fibers: 1)
    Sidekiq::Processor.new(@capsule) {}
    dispatcher = @capsule.heddle_dispatcher
    began, returned = Thread::Queue.new, []
    unit = Object.new
    unit.define_singleton_method(:requeue) do
      began << true
      sleep 0.1 # Redis is slow
      returned << self
    end
    dispatcher.join
    dispatcher.give_back(unit)
    began.pop
    dispatcher.stop
    assert_empty dispatcher.take_homeless(5)
    assert_equal [unit], returned
  end

  # Redis does not answer as the process stops.
  def test_a_job_that_is_on_its_way_to_its_queue_is_not_lost
    @config.heddle(fibers: 1)
    Sidekiq::Processor.new(@capsule) {}
    dispatcher = @capsule.heddle_dispatcher
    began, gate = Thread::Queue.new, Thread::Queue.new
    unit = Sidekiq::BasicFetch::UnitOfWork.new("queue:default", job(1, 0), @capsule)
    unit.define_singleton_method(:requeue) { gate.pop if began << true }
    thread = dispatcher.join
    dispatcher.give_back(unit)
    began.pop
    dispatcher.stop
    assert_equal [unit], dispatcher.take_homeless(0)
    gate << true
    assert thread.join(stretched(5))
  end

  # The gem of the program's fetch has an error of its own.
  def test_a_job_that_cannot_return_to_its_queue_leaves_the_others_alone
    failures, returned = 1, []
    unit = Fetch::Unit.new("to be returned")
    unit.define_singleton_method(:requeue) { ((failures -= 1) == 0) ? raise("on purpose") : returned << self }
    fetch = run_jobs([job(1, 0.1), job(2, 60)], fibers: 2, until_ended: 1) do
      @capsule.heddle_dispatcher.give_back(unit)
      wait_until(what: "the error") { @output.string.include?("on purpose") }
    end
    assert_equal [unit], returned
    assert_equal [[:acknowledged, job(1, 0.1)], [:requeued, job(2, 60)]], fetch.log
  end

  # It is worse to lose a job than to run it twice.
  def test_a_job_that_does_not_end_returns_to_its_queue_all_the_same
    fetch = run_jobs([job(1, 60, true), job(2, 0.1)], fibers: 2, until_ended: 1)
    assert_equal 1, fetch.log.count { |what, job| what == :requeued && job.include?('"1"') }
    assert_equal ["1", "2"], Job.cleaned.sort
  end

  def test_a_failed_job_is_acknowledged_and_its_place_used_again
    start_redis
    @config.redis = {url: @redis.url}
    jobs = Array.new(4) { |i| JSON.generate("class" => "NoSuchJob", "jid" => "f#{i}", "args" => [], "retry" => 1) }
    jobs.push(job(1, 0.01), "not JSON")
    fetch = run_jobs(jobs, fibers: 2, until_ended: 1) { fetch_log_size(6) }
    assert_equal jobs.sort, fetch.log.map(&:last).sort
    assert_equal 4, redis("ZCARD", "retry")
    assert_equal 1, redis("ZCARD", "dead")
  ensure
    @redis&.stop
  end

  # As Sidekiq's own tests have it: without a manager, and with the methods that they call.
  def test_a_processor_alone_ends_its_thread
    Fetch.jobs = [job(1, 60)]
    @config[:fetch_class] = Fetch
    @config.heddle(fibers: 2, stall: nil)
    errors = []
    processors = Array.new(2) { Sidekiq::Processor.new(@capsule) { |_processor, error| errors << error } }
    processors.first.terminate(true)
    assert_nil processors.first.thread
    processors.each(&:start)
    thread = processors.last.thread
    wait_until { @capsule.fetcher.units.any? && processors.any?(&:job) }
    busy, idle = processors.partition(&:job)
    idle.first.terminate(true)
    assert_predicate thread, :alive?, "the other processor needs it"
    busy.first.kill(true)
    assert_equal false, thread.status
    assert_equal [nil, nil], errors
    assert_equal Sidekiq::Processor.public_method_defined?(:process), busy.first.respond_to?(:process)
    another = Sidekiq::Processor.new(@capsule) {}.tap(&:start)
    refute_same thread, another.thread
    another.kill(true)
  end

  # ActiveSupport would keep a job's attributes by thread.
  def test_isolation_by_threads_is_refused
    assert_match(/isolation_level = :fiber/, assert_child(<<~RUBY, gems: true))
      require "active_support"
      require "active_support/isolated_execution_state"
      require "heddle/sidekiq"
      config = Sidekiq::Config.new
      config.heddle(fibers: 2)
      begin
        Sidekiq::Manager.new(config.default_capsule)
      rescue ArgumentError => error
        puts error.message
      end
      ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
      Sidekiq::Manager.new(config.default_capsule)
    RUBY
  end

  private

  # @param ways [Hash{Symbol => Symbol}] the ends of EndingJobs, and what becomes of these jobs
  def assert_stops(ways, also_cleaned = [])
    EndingJob.began, EndingJob.cleaned, EndingJob.stopping = [], [], false
    start_redis
    @config.redis = {url: @redis.url}
    jobs = ways.keys.to_h do |way|
      [way, JSON.generate("class" => EndingJob.name, "jid" => way, "args" => [way], "retry" => 1)]
    end
    Fetch.jobs = jobs.values
    @config[:fetch_class] = Fetch
    manager = Sidekiq::Manager.new(heddle_capsule(fibers: 20, stall: nil))
    manager.start
    wait_until(20, what: "the jobs") { EndingJob.began.size == ways.size }
    manager.quiet
    EndingJob.stopping = true
    manager.stop(monotonic + 0.5)
    assert_equal [*ways.keys, *also_cleaned].map(&:to_s).sort, EndingJob.cleaned.sort
    log = @capsule.fetcher.log
    retried = Sidekiq::RetrySet.new.map { |job| job.jid.to_sym }
    ends = jobs.to_h do |way, job|
      told = log.filter_map { |what, unit| what if unit == job }
      [way, (told == [:acknowledged] && retried.include?(way)) ? :retried : told]
    end
    assert_equal ways.transform_values { |what| (what == :retried) ? what : [what] }, ends
    assert_equal retried.uniq, retried
  ensure
    @redis&.stop
  end

  def assert_withheld(killing)
    Fetch.jobs = [job(1, 60), killing]
    @config[:fetch_class] = Fetch
    manager = Sidekiq::Manager.new(heddle_capsule(fibers: 3))
    manager.start
    fetch = @capsule.fetcher
    wait_until(what: "the other job's return") { fetch.log.any? }
    Fetch.jobs << job(2, 0.01)
    wait_until(what: "a job of the next thread") { fetch.log.include?([:acknowledged, job(2, 0.01)]) }
    refute_includes fetch.log.map(&:last), killing
    manager.stop(monotonic)
    assert_equal [job(1, 60), killing].sort, fetch.log.filter_map { |what, job| job if what == :requeued }.sort
  end
end
