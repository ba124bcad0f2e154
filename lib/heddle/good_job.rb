# frozen_string_literal: true

require_relative "active_job"
require_relative "executor"
Heddle::RequiredGem.load("good_job", "heddle/good_job", "good_job, 4.0 or later")

module Heddle
  # Runs the jobs of good_job as tasks: `max_threads` becomes the number of tasks, which share one thread for each queue
  # pool. Everything else is good_job's own: its polling, LISTEN, cron, shutdown and signals.
  #
  #   require "heddle/good_job"
  #   config.active_support.isolation_level = :fiber
  #   config.good_job.lock_strategy = :skiplocked # advisory locks would hold a connection for each job
  #   config.good_job.max_threads = 200
  module GoodJobSupport
    # Prepended to GoodJob::Scheduler, which makes an executor of its own class and has no setting for another.
    #
    # @api private
    module Scheduler
      private

      def create_executor
        unless ActiveSupport::IsolatedExecutionState.isolation_level == :fiber
          raise ThreadError, "heddle/good_job runs jobs as tasks of one thread, which would share connections and " \
            "current attributes: write config.active_support.isolation_level = :fiber in config/application.rb"
        end

        super
        @executor.shutdown # no thread has started
        fibers, queue = @executor_options.values_at(:max_threads, :max_queue)
        @executor = Executor.new(fibers: fibers, max_queue: queue, fallback_policy: :discard, name: name)
      end
    end
    private_constant :Scheduler

    ::GoodJob::Scheduler.prepend(Scheduler)
  end
end
