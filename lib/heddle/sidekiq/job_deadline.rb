# frozen_string_literal: true

require_relative "../jobs/inherited_deadline"
require_relative "../jobs/limits"
require_relative "../jobs/within_callbacks"

module Heddle
  module SidekiqSupport
    # Extends a chain of server middleware: gives +perform+ the seconds of <tt>sidekiq_options deadline: 30</tt> for all
    # of its waits, or what is left of the deadline that the job inherited ({SendDeadline}), and the limits of its class
    # (`heddle_limit`); the wait for these is one of them.
    #
    # Within all middleware, whenever it was added: clean-up there, as of locks in Redis, is not ended by the deadline.
    #
    # @api private
    module JobDeadline
      # @return [Object] the block's value
      def self.within(instance, job, &block)
        seconds, at = seconds(job["deadline"]), job["deadline_at"]
        return Jobs::WithinCallbacks.hand(seconds, at, &block) if job["wrapped"] && active_job?

        Jobs::InheritedDeadline.within(seconds, at) { JobLimits.within(instance.class, &block) }
      end

      # Whether jobs of ActiveJob see to their deadlines themselves.
      def self.active_job?
        Object.const_defined?("ActiveJob::Base") && ::ActiveJob::Base.include?(Jobs::WithinCallbacks)
      end

      # @param value [Object] as it came from JSON: a Duration of ActiveSupport comes as a String
      # @return [Float, nil]
      def self.seconds(value)
        seconds = Float(value, exception: false) unless value.nil?
        return seconds if value.nil? || seconds&.positive?

        raise ArgumentError, "heddle: the deadline of a job must be a number of seconds above 0, not #{value.inspect}"
      end

      def invoke(instance, job, *arguments, &block)
        super { JobDeadline.within(instance, job, &block) }
      end

      def copy_for(...) = super.extend(JobDeadline)
    end
  end
end
