# frozen_string_literal: true

require_relative "inherited_deadline"

module Heddle
  module Jobs
    # Prepended to ActiveJob::Base: the payload of a job of a class with <tt>heddle_deadline inherit: true</tt> has the
    # end of the deadline within which the job was enqueued.
    module SendDeadline
      # Its name in the payload.
      NAME = "heddle_deadline_at"
      private_constant :NAME

      # @return [Float, nil] Unix time
      attr_reader :heddle_deadline_at

      # Nobody waits for a job that is to run later. A retry keeps that of the first run.
      def serialize
        @heddle_deadline_at ||= InheritedDeadline.now if self.class.heddle_deadline_inherited && !scheduled_at
        @heddle_deadline_at ? super.merge(NAME => @heddle_deadline_at) : super
      end

      def deserialize(job_data)
        super
        @heddle_deadline_at = job_data[NAME]
      end
    end
  end
  private_constant :Jobs
end
