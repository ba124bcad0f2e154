# frozen_string_literal: true

# A fiber scheduler with the hooks that Ruby requires and no more: it uses resume and yield, without Fiber#raise,
# cancel or an interrupt of its own.
class LeastScheduler
  def initialize
    @ready = Thread::Queue.new # other threads unblock, too
    @timers = {}.compare_by_identity
    @waiting = {}.compare_by_identity
    @parked = {}.compare_by_identity # Ruby up to 3.1 keeps none of them alive
  end

  def fiber(&block) = Fiber.new(blocking: false, &block).tap(&:resume)

  def block(_, timeout = nil)
    unblocked = park(timeout)
    unblocked == :unblocked
  end

  def unblock(_, fiber) = @ready << fiber

  def kernel_sleep(duration = nil)
    park(duration)
    true
  end

  def io_wait(io, events, timeout = nil)
    @waiting[Fiber.current] = io
    (park(timeout) == :readable) ? events : false
  ensure
    @waiting.delete(Fiber.current)
  end

  # Ruby requires it from 4.1 on, and may call it with a proxy that only has +raise+.
  if RUBY_VERSION >= "4.1"
    def fiber_interrupt(fiber, error) = fiber.raise(error)
  end

  def close
    run_once until @parked.empty?
  end

  private

  def park(timeout)
    fiber = Fiber.current
    @parked[fiber] = true
    @timers[fiber] = now + timeout if timeout
    Fiber.yield
  ensure
    @timers.delete(fiber)
    @parked.delete(fiber)
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def run_once
    readable, = IO.select(@waiting.values, nil, nil, 0.001) if @waiting.any?
    @waiting.select { |_, io| readable&.include?(io) }.each_key { |fiber| go_on(fiber, :readable) }
    @timers.select { |_, time| time <= now }.each_key { |fiber| go_on(fiber, :late) }
    go_on(@ready.pop, :unblocked) until @ready.empty?
    sleep(0.0005)
  end

  def go_on(fiber, reason)
    fiber.resume(reason) if @parked.key?(fiber)
  end
end
