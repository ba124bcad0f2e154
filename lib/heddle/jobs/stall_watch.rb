# frozen_string_literal: true

module Heddle
  # What runners of jobs share.
  #
  # @api private
  module Jobs
    # Watches, from a thread of its own, whether the tasks of another thread still take turns. A task that computes, or
    # calls a library that blocks the thread, keeps all others waiting.
    class StallWatch
      # Samples within the time that a task may run.
      SAMPLES = 4
      # A sleeping loop polls the kernel; a busy one switches fibers.
      SIGNS_OF_LIFE = %i[switches polls waits].freeze
      private_constant :SAMPLES

      # @param task [Task]
      # @return [Boolean] whether its code runs now; a task that waits for the loop does not compute, even if the loop
      #   runs on its fiber
      def self.computing?(task) = task.status == :running && task.waits_for.nil?

      # Ends when the scheduler closes.
      #
      # @param scheduler [Scheduler] whose tasks to watch
      # @param thread [Thread] the thread of that scheduler
      # @param seconds [Numeric] how long a task may run
      # @yield in the watching thread, once for each such run, while the task runs
      # @yieldparam seconds [Float] how long the task has been running at least
      # @yieldparam backtrace [Array<String>] of the running task
      def initialize(scheduler, thread, seconds, &report)
        @scheduler = scheduler
        @watched = thread
        @seconds = seconds
        @report = report
        @stopped = false
        @thread = Thread.new { Heddle.background_thread { watch } }
        @thread.name = "heddle stall watch"
      end

      # @return [void]
      def stop
        @stopped = true
        @thread.wakeup if @thread.alive?
      rescue ThreadError
        nil # it has just ended
      end

      private

      def watch
        state = since = nil
        until @stopped || @scheduler.closed?
          sleep @seconds.fdiv(SAMPLES)
          state, since, reported = signs, Clock.now, false if state != signs || idle?
          next if reported || Clock.now - since < @seconds

          report(Clock.now - since)
          reported = true
        end
      end

      # An error of the program's own log must not end the watch.
      def report(seconds)
        @report.call(seconds, @watched.backtrace || [])
      rescue => error
        warn "heddle: a stall of #{seconds.round(1)} s could not be reported: #{error.message} (#{error.class})"
      end

      # Whether no task runs: the loop waits in the kernel.
      def idle? = @scheduler.tasks.none? { |task| StallWatch.computing?(task) }

      def signs = @scheduler.statistics.values_at(*SIGNS_OF_LIFE)
    end
  end
  private_constant :Jobs
end
