# frozen_string_literal: true

require_relative "../job_limits"

module Heddle
  module SidekiqSupport
    # Server middleware for <tt>sidekiq_options deadline: 30</tt>: gives the job, with the middleware inside this one,
    # that many seconds for all of its waits. The wait for the limits of its class (`heddle_limit`) is one of them.
    #
    # @api private
    class JobDeadline
      def call(instance, job, _queue, &block)
        Heddle.deadline(job["deadline"]) { JobLimits.within(instance.class, &block) }
      end
    end
  end
end
