# frozen_string_literal: true

require "heddle/active_job"
require "heddle/executor"
require "concurrent/scheduled_task"

module ActiveJob
  module QueueAdapters
    # Rails' AsyncAdapter on a {Heddle::Executor}: runs jobs in this process, each as a task, and keeps none when the
    # process ends. As there, a job that comes after the shutdown runs in the thread that enqueues it. Needs tasks with
    # current attributes of their own: isolation_level.
    #
    #   config.active_support.isolation_level = :fiber
    #   config.active_job.queue_adapter = :heddle
    #   config.active_job.queue_adapter = ActiveJob::QueueAdapters::HeddleAdapter.new(fibers: 500)
    class HeddleAdapter < AsyncAdapter
      # @param options [Hash] those of {Heddle::Executor#initialize}
      def initialize(**options) # instead of AsyncAdapter's, which makes a pool of threads
        @executor = Heddle::Executor.new(name: "ActiveJob", fallback_policy: :caller_runs, **options)
      end

      # Called by ActiveJob.
      #
      # @param job [ActiveJob::Base]
      # @raise [ArgumentError] if ActiveSupport keeps current attributes by thread: the jobs would share them
      def enqueue(job)
        check_isolation
        job.provider_job_id = job.job_id
        @executor.post(job.serialize) { |data| Base.execute(data) }
      end

      # Called by ActiveJob.
      #
      # @param job [ActiveJob::Base]
      # @param timestamp [Float] seconds since the epoch
      def enqueue_at(job, timestamp)
        delay = timestamp - Time.now.to_f
        return enqueue(job) if delay <= 0

        check_isolation
        job.provider_job_id = job.job_id
        Concurrent::ScheduledTask.execute(delay, args: [job.serialize], executor: @executor) do |data|
          Base.execute(data)
        end
      end

      # Accepts no more jobs.
      #
      # @param wait [Boolean] whether to wait for those that run and those that wait for a fiber
      # @return [void]
      def shutdown(wait: true)
        @executor.shutdown
        @executor.wait_for_termination if wait
      end

      private

      def check_isolation
        return if ActiveSupport::IsolatedExecutionState.isolation_level == :fiber

        raise ArgumentError, "the queue adapter :heddle needs config.active_support.isolation_level = :fiber " \
          "(without Rails: ActiveSupport::IsolatedExecutionState.isolation_level = :fiber)"
      end
    end
  end
end
