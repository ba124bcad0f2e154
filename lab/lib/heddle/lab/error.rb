# frozen_string_literal: true

module Heddle
  module Lab
    # An error that the user can correct; the command prints only the message and exits with {#status}.
    class Error < StandardError
      # @return [Integer] exit status, after sysexits(3): 69, a service is unavailable
      def status = 69
    end

    # A command line that names something unknown.
    class UsageError < Error
      # @return [Integer] exit status 64
      def status = 64
    end
  end
end
