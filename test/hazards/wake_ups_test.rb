# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "monitor"

# Tasks and threads hand work to each other through each of Ruby's means, beside a thread that computes, so that threads
# change at every moment. Each wait is watched. One that lasts alone proves nothing: a Mutex is not fair, and a busy
# machine is slow; so once a wait has lasted 2 s, or the time is over, nobody begins another, and who has missed a
# wake-up waits on when all others are done. HEDDLE_STRESS says how many seconds each kind runs (0.5 by default).
class WakeUpsTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  SECONDS = Float(ENV.fetch("HEDDLE_STRESS", "0.5"))
  PATIENCE = 2
  TASKS = 12
  THREADS = 3

  # Lets other threads run between the decision to wait, which Ruby makes before it calls a hook, and the park. Not in
  # `unblock`: where Ruby wakes several it goes through a list that must not change meanwhile.
  class Wide < Heddle::Scheduler
    PASS = Thread.method(:pass).then do |method|
      (method.owner == Heddle::Compat::ThreadPass) ? method.super_method : method
    end

    %i[block kernel_sleep].each do |hook|
      define_method(hook) do |*arguments|
        PASS.call
        super(*arguments).tap { PASS.call }
      end
    end
  end

  # Says since when each of many waits lasts. Those that wait once more after the end are let go by their kinds'
  # `finish`.
  class Watch
    attr_reader :rounds

    def initialize
      @since = {}
      @rounds = Hash.new(0)
    end

    # The block is one wait, or a few.
    def watch(who)
      @since[who] = now
      yield
      @rounds[who] += 1
    ensure
      @since.delete(who)
    end

    # Of each wait that lasts too long, how long it has lasted.
    def late
      waiting = @since.dup.transform_values { |since| (now - since).round(1) }
      waiting.select { |_, seconds| seconds > PATIENCE }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # A kind of work: `step` is called by each worker over and over; `finish` when all are to come to their end, and wakes
  # nobody that has missed a wake-up: Ruby does not know any more that it waits.
  Kind = Struct.new(:step, :finish)

  def self.kinds
    {
      mutex: lambda do |_|
        mutex = Thread::Mutex.new
        Kind.new(->(_, random) { mutex.synchronize { breathe(random) } }, -> {})
      end,
      condition: lambda do |over|
        mutex, condition = Thread::Mutex.new, Thread::ConditionVariable.new
        waiting = lambda do
          sleep(0) # others wait for the Mutex meanwhile: unlocking it wakes one
          condition.wait(mutex, limit_in_threads) unless over.call
        end
        waking = lambda do |index, random|
          (index < TASKS) ? breathe(random) : 50_000.times {}
          mutex.synchronize { condition.broadcast }
        end
        step = lambda do |index, random|
          (index % 3 == 0 && index != 0) ? waking.call(index, random) : mutex.synchronize(&waiting)
        end
        Kind.new(step, -> { mutex.synchronize { condition.broadcast } })
      end,
      condition_with_a_state: lambda do |over|
        mutex, condition, tokens = Thread::Mutex.new, Thread::ConditionVariable.new, 3
        step = lambda do |_, random|
          mutex.synchronize do
            condition.wait(mutex, limit_in_threads) until tokens > 0 || over.call
            tokens -= 1
          end
          begin
            breathe(random)
          ensure
            Heddle.shield(60) { mutex.synchronize { tokens += 1 } }
            condition.signal
          end
        end
        Kind.new(step, -> { mutex.synchronize { condition.broadcast } })
      end,
      monitor: lambda do |over|
        monitor, tokens = Monitor.new, 3
        condition = monitor.new_cond
        step = lambda do |index, random|
          monitor.synchronize do
            condition.wait((index % 3 == 0) ? 0.5 : limit_in_threads) until tokens > 0 || over.call
            tokens -= 1
          end
          begin
            breathe(random)
          ensure
            Heddle.shield(60) { monitor.synchronize { (tokens += 1) && condition.signal } }
          end
        end
        Kind.new(step, -> { monitor.synchronize { condition.broadcast } })
      end,
      queue: lambda do |_|
        queues = Array.new(TASKS + THREADS) { Thread::Queue.new << :start }
        step = lambda do |index, random|
          token = queues[index].pop
          begin
            breathe(random)
          ensure
            queues[(index + 1) % queues.size] << token
          end
        end
        Kind.new(step, -> { queues.each { |queue| queue << :over } })
      end,
      sized_queue: lambda do |_|
        queue = Thread::SizedQueue.new(2)
        step = lambda do |index, random|
          index.even? ? queue.pop : queue << :item
          breathe(random)
        end
        Kind.new(step, -> { queue.close })
      end,
      join: lambda do |_|
        step = lambda do |index, random|
          thread = Thread.new { breathe(random) }
          index.even? ? thread.join : thread.join(60)
        end
        Kind.new(step, -> {})
      end,
      mutex_sleep: lambda do |_|
        mutex = Thread::Mutex.new
        Kind.new(->(_, random) { mutex.synchronize { mutex.sleep(random.rand(0.002)) } }, -> {})
      end
    }
  end

  # Ruby before 4.0 loses a wake-up of a thread without a scheduler: where it unlocks the Mutex that a fiber waits for, it looks for
  # interrupts after the call of `unblock`, before the thread counts as one that sleeps.
  def self.limit_in_threads
    0.5 unless Fiber.current_scheduler || RUBY_VERSION >= "4.0"
  end

  # Lets others run, or threads change, or goes on at once.
  def self.breathe(random)
    case random.rand(4)
    when 0 then sleep(0)
    when 1 then Thread.pass
    when 2 then sleep(random.rand(0.0005))
    end
  end

  kinds.each do |name, make|
    [nil, Wide].each do |scheduler|
      suffix = "_in_wide_gaps" if scheduler
      define_method("test_#{name}#{suffix}") { stress(make, scheduler, interrupted: false) }
      define_method("test_#{name}_under_deadlines_and_cancels#{suffix}") { stress(make, scheduler, interrupted: true) }
    end
  end

  private

  def stress(make, scheduler, interrupted:)
    over = false
    lost = {}
    watch = Watch.new
    kind = make.call(-> { over })
    work = ->(index) { worker(index, kind, watch, -> { over }, interrupted) }
    # In wide gaps each hook lets it run for a whole slice of time, 100 ms, unless it passes.
    computing = Thread.new { (scheduler ? 200.times { Thread.pass } : 50_000.times {}) until over }
    threads = Array.new(THREADS) { |index| in_background { work.call(TASKS + index) } }
    in_thread do
      Fiber.set_scheduler(scheduler.new) if scheduler
      Heddle.run do
        tasks = Array.new(TASKS) { |index| Heddle.spawn { work.call(index) } }
        keep_watch(watch, interrupted ? tasks : [], work)
        over = true
        lost = finish(kind, watch, tasks, threads)
      end
    end
    assert_empty lost, "seconds that each worker has waited without cause"
    assert_operator watch.rounds.values.sum, :>, 0, "nothing happened"
  ensure
    over = true
    [computing, *threads].each { |thread| thread.kill.join }
  end

  def worker(index, kind, watch, over, interrupted)
    random = Random.new(index)
    until over.call
      begin
        limit = (interrupted && index % 3 == 1) ? random.rand(0.002) : 60
        watch.watch(index) { Heddle.deadline(limit) { kind.step.call(index, random) } }
      rescue Heddle::DeadlineExceeded, ClosedQueueError
        nil
      end
    end
  end

  # Cancelled tasks are replaced: the others count on them.
  def keep_watch(watch, cancellable, work)
    random = Random.new(1)
    finish = watch.now + SECONDS
    while watch.now < finish && watch.late.empty?
      sleep(0.02)
      next if cancellable.empty?

      index = random.rand(cancellable.size)
      cancelled = cancellable[index].cancel
      cancellable[index] = Heddle.spawn { cancelled.wait && work.call(index) }
    end
  end

  # Returns what waits on for no cause, by worker.
  def finish(kind, watch, tasks, threads)
    last = watch.now + 5 * PATIENCE
    until tasks.all?(&:ended?) && threads.none?(&:alive?)
      kind.finish.call
      return watch.late.tap { tasks.each(&:cancel) } if watch.now > last

      sleep(0.002)
    end
    {}
  end
end
