# frozen_string_literal: true

class WaitStress
  # Knows of many waits which worker waits, since when, and where.
  class Watch
    Wait = Struct.new(:worker, :since, :task, :thread)

    def initialize(patience)
      @patience = patience
      @waits = {}
      @rounds = Hash.new(0)
    end

    # The block is one wait, or a few.
    def watch(worker)
      @waits[worker] = Wait.new(worker, now, Heddle::Task.current, Thread.current)
      yield
    ensure
      @waits.delete(worker)
      @rounds[worker] += 1
    end

    # @return [Integer] waits that ended
    def rounds = @rounds.values.sum

    # @return [Array<String>] a line for each wait that lasts too long
    def late
      @waits.values.filter_map { |wait| describe(wait) if now - wait.since > @patience }
    end

    private

    def describe(wait)
      what = wait.task ? "task, waits for #{wait.task.waits_for}" : "thread, #{wait.thread.status}"
      places = (wait.task || wait.thread).backtrace&.first(20)&.map { |place| "\n    #{place}" }
      "worker #{wait.worker} (#{what}) for #{(now - wait.since).round(1)} s#{places&.join}"
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
