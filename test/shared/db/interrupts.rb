# frozen_string_literal: true

require "heddle"
require "heddle/db"
require "support/stream_helpers"

# Tasks and threads do random things to one database over pools, among deadlines, cancels, Thread#raise, Thread#kill
# and, where a test has #kill_one, connections that the server ends. HEDDLE_STRESS sets the length in seconds,
# HEDDLE_STRESS_SEED what a failure printed.
#
# A suite has #job(random), which the tasks and threads call again and again, #address, #pools (at least one), and
# #prepare_database.
module DatabaseInterrupts
  include StreamHelpers

  LONG = ENV.key?("HEDDLE_STRESS")
  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", 2))
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })
  TASKS = 12
  THREADS = 3
  PLACES = 4
  KILLS = 0.1 # of the interrupts
  Interrupted = Class.new(StandardError)
  # What may become of an operation that was interrupted, or came too late. A connection that the server ends while it
  # is opened is a log-in that failed to drivers of ODBC.
  EXPECTED = [Heddle::DeadlineExceeded, Heddle::DB::PoolTimeout, Heddle::DB::LockTimeout,
    Heddle::DB::SerializationFailure, Heddle::DB::DeadlockDetected, Heddle::DB::ConnectionLost,
    Heddle::DB::TransactionError, Heddle::DB::LoginFailed].freeze
  MASK = {Interrupted => :never}.freeze
  OPEN = {Interrupted => :immediate}.freeze
  DESCRIPTORS = "/proc/self/fd"
  # Those that the process opens once: the loop's, the driver's.
  OPENED_ONCE = 6

  def setup
    super
    @random = Random.new(SEED)
    @counts = Hash.new(0)
    @number = 0
    @lock = Thread::Mutex.new
    prepare_database
  end

  private

  # Makes the pools, runs the jobs, and checks that no place of a pool is lost. Yields before the pools are closed;
  # then all descriptors must be.
  def among_interrupts
    before = descriptors
    @pools = pools
    run_jobs
    @pools.each { |pool| wait_until(what: "places that come back: #{pool.inspect}") { idle?(pool) } }
    yield
    @pools.each(&:close)
    wait_until(what: "descriptors to be closed") { GC.start || descriptors <= before + OPENED_ONCE }
    puts context.call if LONG
  end

  # Pools of a server, or of ODBC: statements are kept in one way or the other.
  def server_pools(size)
    %i[virtual always].map do |cache|
      Heddle::DB::Pool.new(address, size: size, **limits, statement_cache: cache)
    end
  end

  # The two kinds of pools that SQLite has.
  def sqlite_pools(size)
    [Heddle::DB::Pool.new(address, size: size, **limits, busy_timeout: 10),
      Heddle::DB::SQLite::Pool.new(address, readers: 1, **limits, statement_cache: :always)]
  end

  def limits = {timeout: stretched(20), checkout_timeout: stretched(20)}

  # Of all pools' connections, all are free.
  def idle?(pool)
    stats = pool.stats
    stats = {pool: stats} unless stats.values.first.is_a?(Hash)
    stats.each_value.all? { |of| of[:connections] == of[:free] && of[:waiting].zero? }
  end

  def descriptors = Dir.exist?(DESCRIPTORS) ? Dir.children(DESCRIPTORS).size : 0

  # Made only for a failure.
  def context = -> { "seed #{SEED}: #{@counts.sort_by { |what, _| what.to_s }.to_h}" }

  def count(what) = @lock.synchronize { @counts[what] += 1 }

  def number = @lock.synchronize { @number += 1 }

  def run_jobs
    finish = monotonic + SECONDS
    threads = Array.new(THREADS) { |n| thread(finish, SEED + n) }
    interrupter = Thread.new { interrupt(threads, finish) }
    killer = Thread.new { kill_until(finish) } if respond_to?(:kill_one, true)
    Heddle.run { cancel_again_and_again(finish) }
    interrupter.join(stretched(30)) || flunk("a thread hangs: #{threads.filter_map(&:backtrace).inspect}")
    threads.each(&:value)
    killer&.value
  ensure
    [interrupter, killer, *threads].each { |thread| thread&.kill&.join(30) }
  end

  def cancel_again_and_again(finish)
    tasks = Array.new(TASKS) { start(finish) }
    while monotonic < finish
      sleep 0.005
      index = @random.rand(TASKS)
      tasks[index].cancel
      count(:cancel)
      tasks[index].wait(30) || flunk("a cancelled task does not end: #{tasks[index].inspect}")
      tasks[index] = start(finish)
    end
    tasks.each { |task| task.wait(30) || flunk("a task does not end: #{task.inspect}") }
    tasks.each(&:value)
  end

  def start(finish)
    Heddle.spawn do
      job(@random) while monotonic < finish
    rescue Heddle::Cancellation
      :cancelled
    end
  end

  def thread(finish, seed)
    Thread.handle_interrupt(MASK) { Thread.new { in_thread(finish, Random.new(seed)) } } # which inherits the mask
  end

  def in_thread(finish, random)
    Thread.current.report_on_exception = false
    while monotonic < finish
      begin
        Thread.handle_interrupt(OPEN) { job(random) }
      rescue Interrupted
        count(:thread)
      rescue IOError => error
        # Ruby's own, of a connection that was closed while an interrupt was on its way to the same wait.
        raise unless error.message == "stream closed in another thread"
      end
    end
  end

  # A thread that was killed has a successor.
  def interrupt(threads, finish)
    random = Random.new(SEED)
    while threads.any?(&:alive?)
      index = random.rand(THREADS)
      if random.rand < KILLS && monotonic < finish
        threads[index].kill.join(30)
        threads[index].value # raises what ended it before
        threads[index] = thread(finish, random.rand(1 << 30))
        count(:kill)
      else
        threads[index].raise(Interrupted)
      end
      sleep 0.003 + random.rand * 0.01
    end
  end

  def kill_until(finish)
    while monotonic < finish
      sleep 0.02
      count(:killed_by_server) if kill_one
    end
  end

  def limited(seconds)
    Heddle.deadline(seconds) { yield }
  rescue *EXPECTED => error
    count(:interrupted)
    count(error.class.name[/\w+\z/])
    :interrupted
  end
end
