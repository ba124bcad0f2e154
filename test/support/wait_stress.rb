# frozen_string_literal: true

require "monitor"
require_relative "slowness"
require_relative "wait_stress/contended"
require_relative "wait_stress/watch"

# Tasks and threads that wait for each other in one way of {Contended}, beside a thread that computes, so that threads
# switch at every moment. Each wait is watched. One long wait proves nothing: a Mutex is not fair, and a busy machine
# is slow. So once a wait has lasted 2 s, or the time is over, no worker begins another wait, and a worker that missed
# a wake-up still waits when all others are done. If none did, all begin again until the time is over.
class WaitStress
  PATIENCE = 2
  TASKS = 16
  THREADS = 4
  LIMIT = 60 # for a wait that nobody interrupts

  # Lets other threads run between Ruby's decision to wait, which it makes before it calls a hook, and the park. Not
  # in `unblock`: where Ruby wakes several waiters, it iterates over a list that must not change meanwhile.
  class Wide < Heddle::Scheduler
    PASS = Thread.method(:pass).then do |method|
      (method.owner == Heddle::RubyFixes::ThreadPass) ? method.super_method : method
    end

    %i[block kernel_sleep].each do |hook|
      define_method(hook) do |*arguments|
        PASS.call
        super(*arguments).tap { PASS.call }
      end
    end
  end

  # @return [Integer] waits that ended
  attr_reader :waits

  # @param contended [Class] what is waited for, see {Contended}
  # @param seconds [Numeric] how long new waits begin
  # @param seed [Integer] decides what each worker does; the machine decides which workers meet
  # @param scheduler [Class, nil] the tasks' scheduler, instead of Heddle's own
  # @param interrupted [Boolean] whether deadlines and cancels end some of the waits
  def initialize(contended, seconds:, seed:, scheduler: nil, interrupted: false)
    @contended = contended
    @seconds = seconds
    @seed = seed
    @scheduler = scheduler
    @interrupted = interrupted
    @watch = Watch.new(Slowness.stretch(PATIENCE))
  end

  # @return [Array<String>] workers that waited without a cause, and where
  def run
    computing = Thread.new { loop { compute } }
    @finish = now + @seconds
    lost = []
    lost = run_once while lost.empty? && now < @finish
    lost
  ensure
    computing.kill.join
    @waits = @watch.rounds
  end

  private

  # This thread calls Thread.pass: otherwise each handover would take a whole time slice, 100 ms.
  def compute
    @scheduler ? 200.times { Thread.pass } : 50_000.times {}
    Thread.pass
  end

  def run_once
    @over = false
    Thread.new do
      Thread.current.report_on_exception = false
      Fiber.set_scheduler(@scheduler.new) if @scheduler
      Heddle.run { work_and_watch }
    end.value
  end

  def work_and_watch
    place = @contended.new(TASKS + THREADS, -> { @over })
    threads = Array.new(THREADS) { |index| start_thread(place, TASKS + index) }
    tasks = Array.new(TASKS) { |index| Heddle.spawn(name: "worker #{index}") { work(place, index) } }
    keep_watch(place, tasks)
    @over = true
    finish(place, tasks, threads)
  ensure
    @over = true
    threads&.each { |thread| thread.kill.join }
    place&.close
  end

  def start_thread(place, index)
    Thread.new do
      Thread.current.report_on_exception = false
      Thread.current.name = "worker #{index}"
      work(place, index)
    end
  end

  def work(place, index)
    random = Random.new(@seed + index)
    until @over
      limit = random.rand(0.002) if interrupted?(place, index)
      @watch.watch(index) { limited(limit) { place.wait(index, random) } }
    end
  end

  def interrupted?(place, index)
    @interrupted && index % 3 == 1 && (index < TASKS || place.interruptible_threads?)
  end

  def limited(limit, &block)
    Heddle.deadline(limit || LIMIT, &block)
  rescue Heddle::DeadlineExceeded
    raise unless limit
  end

  # Cancelled tasks are replaced, since the others depend on them.
  def keep_watch(place, tasks)
    random = Random.new(@seed)
    while now < @finish && @watch.late.empty?
      sleep(0.02)
      next unless @interrupted

      index = random.rand(tasks.size)
      cancelled = tasks[index].cancel
      tasks[index] = Heddle.spawn(name: "worker #{index}") { cancelled.wait && work(place, index) }
    end
  end

  # Returns the workers that still wait without a cause.
  def finish(place, tasks, threads)
    last = now + Slowness.stretch(5 * PATIENCE)
    until tasks.all?(&:ended?) && threads.none?(&:alive?)
      place.finish
      return @watch.late.tap { tasks.each(&:cancel) } if now > last

      sleep(0.002)
    end
    [*tasks, *threads].each(&:value)
    []
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
