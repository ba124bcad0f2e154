# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/required_gem"
Heddle::RequiredGem.load("active_job", "heddle/active_job", "activejob, 7.1 or later")
require_relative "active_record"
require_relative "jobs/limits"
require_relative "jobs/send_deadline"
require_relative "jobs/within_callbacks"

module Heddle
  # Deadlines and limits for the jobs of ActiveJob, whatever runs them: threads, or fibers of Solid Queue, good_job,
  # Sidekiq or {Executor}.
  #
  #   require "heddle/active_job"
  #
  #   class FetchJob < ApplicationJob
  #     heddle_deadline 30, inherit: true                             # seconds, for all that the job waits for
  #     heddle_limit "api.example", concurrent: 20, per_second: 50    # in all processes together
  #     retry_on Heddle::DeadlineExceeded, wait: 10
  #   end
  #
  # After the deadline each wait of the job fails with {DeadlineExceeded}; its query is stopped on the server, and its
  # connections are clean or closed. The error is the job's: `retry_on`, `discard_on`, `rescue_from` and callbacks see
  # it, and run after the deadline has ended. The deadline includes `perform`, and the wait for its limits. It includes
  # neither the callbacks of the job, which may have to clean up, nor the look-up of records that are its arguments.
  #
  # With <tt>inherit: true</tt> a job that is enqueued within a deadline ({Heddle.deadline}, {Rack::Deadline}) has at
  # most what is left of that when it runs, in whichever process: its payload has the end as Unix time, so the machines'
  # clocks should agree. A job that comes too late fails with {DeadlineExceeded} without a call of `perform`. Its
  # retries have the same end. Jobs for later (`wait:`, `wait_until:`) inherit nothing.
  #
  # Its queue adapter +:heddle+ is that of Rails' `:async`, with tasks in place of threads.
  module ActiveJobSupport
    include JobLimits

    # Gives each job of this class and its subclasses that many seconds. Both arguments replace what a superclass has:
    # nil, also by default, removes its limit.
    #
    # @param seconds [Numeric, nil]
    # @param inherit [Boolean] whether the deadline around the code that enqueues a job binds the job, too
    # @return [void]
    # @raise [TypeError, ArgumentError] for anything but a number of seconds above 0
    def heddle_deadline(seconds = nil, inherit: false)
      unless seconds.nil? || seconds.is_a?(Numeric) || seconds.is_a?(ActiveSupport::Duration)
        raise TypeError, "heddle_deadline takes a number of seconds, not #{seconds.inspect}"
      end
      raise ArgumentError, "heddle_deadline must be more than 0 seconds, not #{seconds}" if seconds && seconds <= 0

      self.heddle_deadline_seconds = seconds&.to_f
      self.heddle_deadline_inherited = inherit
      nil
    end

    # @api private
    def self.extended(base)
      base.class_attribute(:heddle_deadline_seconds, :heddle_deadline_inherited, instance_accessor: false)
      base.prepend(Jobs::SendDeadline)
      base.prepend(Jobs::WithinCallbacks)
    end
  end

  ActiveSupport.on_load(:active_job) { extend ActiveJobSupport }
end

module ActiveJob
  module QueueAdapters
    autoload :HeddleAdapter, File.expand_path("../active_job/queue_adapters/heddle_adapter", __dir__)
  end
end
