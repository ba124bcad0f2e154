# frozen_string_literal: true

module Heddle
  module Jobs
    # Prepended to ActiveJob::Base: puts the deadline and the limits of a job inside all its callbacks, whenever these
    # were added. A callback may have to clean up; that of ActiveJob::Continuable enqueues the job's next part.
    module WithinCallbacks
      # Has the next job that the block performs end after that time.
      #
      # @param seconds [Numeric, nil]
      # @return [Object] the block's value
      def self.hand(seconds)
        Thread.current[:heddle_job_seconds] = seconds
        yield
      ensure
        Thread.current[:heddle_job_seconds] = nil
      end

      def run_callbacks(kind, *arguments, &block)
        return super unless kind == :perform && block

        handed, Thread.current[:heddle_job_seconds] = Thread.current[:heddle_job_seconds], nil
        own = self.class.heddle_deadline_seconds if self.class.respond_to?(:heddle_deadline_seconds)
        super { Heddle.deadline([handed, own].compact.min) { JobLimits.within(self.class, &block) } }
      end
    end
  end
  private_constant :Jobs
end
