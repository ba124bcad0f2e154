# frozen_string_literal: true

require_relative "../jobs/inherited_deadline"

module Heddle
  module SidekiqSupport
    # Client middleware for <tt>sidekiq_options inherit_deadline: true</tt>: a job that is pushed within a deadline gets
    # its end. A job for later (+perform_in+) has nobody who waits for it, and gets none; a retry keeps that of its
    # first run.
    #
    # @api private
    class SendDeadline
      def call(_job_class, job, _queue, _redis)
        if job["inherit_deadline"] && !job.key?("at") && !job.key?("deadline_at") && (at = Jobs::InheritedDeadline.now)
          job["deadline_at"] = at
        end
        yield
      end
    end
    private_constant :SendDeadline
  end
end
