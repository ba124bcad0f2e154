# frozen_string_literal: true

module Heddle
  module Jobs
    # The deadline that was around the code that has enqueued a job, as Unix time in the job's payload: the job runs in
    # another process, perhaps on another machine, whose monotonic clock is another one.
    module InheritedDeadline
      # @return [Float, nil] Unix time at which the deadline around the caller ends; nil without one
      def self.now
        seconds = Heddle.remaining
        seconds && Time.now.to_f + seconds
      end

      # Calls the block within a job's own deadline and what is left of the inherited one.
      #
      # @param seconds [Numeric, nil]
      # @param at [Numeric, nil] Unix time
      # @return [Object] the block's value
      # @raise [DeadlineExceeded] without a call of the block, if the inherited one has passed
      # @raise [ArgumentError] for a time that is no number: a program of another kind has enqueued the job
      def self.within(seconds, at, &block)
        return Heddle.deadline(seconds, &block) if at.nil?
        raise ArgumentError, "a job's deadline is Unix time, a number, not #{at.inspect}" unless at.is_a?(Numeric)

        left = at - Time.now.to_f
        return Heddle.deadline([seconds, left].compact.min, &block) if left > 0

        raise DeadlineExceeded, format("the deadline of whoever enqueued this job passed %.3f s before the job began",
          -left)
      end
    end
  end
  private_constant :Jobs
end
