# frozen_string_literal: true

require_relative "inherited_deadline"

module Heddle
  module Jobs
    # Prepended to ActiveJob::Base: puts the deadline and the limits of a job inside all its callbacks, whenever these
    # were added. A callback may have to clean up; that of ActiveJob::Continuable enqueues the job's next part.
    module WithinCallbacks
      # Has the next job that the block performs end after that time.
      #
      # @param seconds [Numeric, nil]
      # @param at [Numeric, nil] Unix time
      # @return [Object] the block's value
      def self.hand(seconds, at)
        Thread.current[:heddle_job_deadline] = [seconds, at]
        yield
      ensure
        Thread.current[:heddle_job_deadline] = nil
      end

      def run_callbacks(kind, *arguments, &block)
        return super unless kind == :perform && block

        handed, Thread.current[:heddle_job_deadline] = Thread.current[:heddle_job_deadline], nil
        seconds, at = handed
        if self.class.respond_to?(:heddle_deadline_seconds)
          seconds = [seconds, self.class.heddle_deadline_seconds].compact.min
          at = [at, heddle_deadline_at].compact.min
        end
        super { InheritedDeadline.within(seconds, at) { JobLimits.within(self.class, &block) } }
      end
    end
  end
  private_constant :Jobs
end
