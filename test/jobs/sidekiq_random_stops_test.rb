# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/sidekiq_helpers"

runs_on rubies: :newest, short: false

# Processes that are stopped and killed at random, with libraries that hold something for each job: slots of
# sidekiq-throttled, locks of sidekiq-unique-jobs, steps of ActiveJob::Continuable. No job is lost, and what was held
# for it comes back; on fibers and, beside them, on threads.
class SidekiqRandomStopsTest < Minitest::Test
  include LoopHelpers
  include SidekiqHelpers
  include SidekiqHelpers::OwnRedis

  hard_deadline 150
  mode :fiber

  WORKERS = 15
  EACH = 12 # jobs of each kind
  STOPS = 2
  KILLED = {SLOT_SECONDS: 3}.freeze # by which slots of a process that was killed come back

  CLIENT = SidekiqHelpers.unique_client("LIBRARIES") + <<~RUBY
    ActiveJob::Base.logger = nil
    ids = #{EACH}.times.flat_map do |number|
      [RecordedJob, ThrottledJob, LockedJob, *(StepsJob if defined?(StepsJob))].map do |job|
        "\#{job} \#{number}".tap do |id|
          (job < ActiveJob::Base) ? job.perform_later(id, 0.05) : job.perform_async(id, 0.05)
        end
      end
    end
    print ids.join(",")
  RUBY

  {fibers: {FIBERS: WORKERS}, threads: {THREADS: WORKERS}}.each do |name, workers|
    define_method(:"test_stops_on_#{name}") do
      ids = push_all
      random { |random| STOPS.times { stop_at_random(random, workers) && assert_empty(lost(ids)) } }
      finish(ids, workers)
    end

    # Sidekiq's own guarantee is that a process that is killed loses what it runs or is fetching, and no other.
    define_method(:"test_kills_on_#{name}") do
      ids = push_all
      random do |random|
        process = start(workers, **KILLED)
        some_more_begin(random)
        process.signal(:KILL).wait(10)
      end
      gone = lost(ids)
      assert_operator gone.size, :<=, 2 * WORKERS
      finish(ids - gone, workers, killed: true)
    end
  end

  private

  # What fails says which seed it was.
  def random
    seed = Integer(ENV.fetch("SEED") { Random.new_seed % 100_000 })
    yield Random.new(seed)
  rescue Minitest::Assertion => error
    raise error.class, "#{error.message} (SEED=#{seed})"
  end

  def push_all = in_client(CLIENT).split(",")

  def start(workers, **variables) = start_sidekiq(**workers, TIMEOUT: 1, LIBRARIES: 1, **variables)

  def some_more_begin(random)
    wanted = progress + random.rand(1..20)
    wait_until(40, what: "jobs") { pause && (progress >= wanted || waiting.empty?) }
    sleep(random.rand(0.0..0.3))
  end

  # Each look is some requests to Redis.
  def pause = sleep(0.05)

  def progress = list("began").size + list("first").size

  # Tells it to stop once, twice, or to be quiet before.
  def stop_at_random(random, workers)
    process = start(workers)
    some_more_begin(random)
    [[:TERM], %i[TSTP TERM], %i[TERM TERM]].sample(random: random).each do |signal|
      process.signal(signal)
      sleep(random.rand(0.0..0.5))
    end
    assert_ends(process, 20)
  end

  # Starts a process that runs what is left, and looks at what is held for the jobs then.
  #
  # @param killed [Boolean] whether the process before was: what it held lies there until it expires
  def finish(ids, workers, killed: false)
    process = start(workers, **(killed ? KILLED : {}))
    # With all jobs done, a signal would come while Ruby still loads the program.
    wait_until(40, what: "its start") { pause && Sidekiq::ProcessSet.new(false).any? { _1["pid"] == process.pid } }
    wait_until(60, what: "all jobs") { pause && (ids - list("done")).empty? }
    wait_until(20, what: "the end of the last job") do
      pause && waiting.empty? && slots.zero? && (killed || locks.empty?)
    end
    process.signal(:TERM)
    assert_ends(process, 20)
    unless killed
      assert_operator list("throttled").map(&:to_i).max, :<=, 3
      # A step is done again only if the stop came while Redis was told of its end.
      assert_operator list("first").tally.count { |_, times| times > 1 }, :<=, 3
    end
    assert_empty Sidekiq::DeadSet.new.to_a
  end

  def waiting
    sets = [Sidekiq::RetrySet.new, Sidekiq::ScheduledSet.new].flat_map { |set| set.map(&:item) }
    (list("queue:default").map { |job| JSON.parse(job) } + sets).map { |job| id_of(job) }
  end

  # ActiveJob's are wrapped.
  def id_of(job)
    argument = job.fetch("args").first
    argument.is_a?(Hash) ? argument.fetch("arguments").first : argument
  end

  def lost(ids) = ids - list("done") - waiting

  def slots
    redis("KEYS", "throttled:*").sum { |key| (redis("TYPE", key) == "zset") ? redis("ZCARD", key) : 0 }
  end

  def locks = redis("KEYS", "uniquejobs:*:LOCKED")
end
