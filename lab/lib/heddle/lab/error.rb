# frozen_string_literal: true

module Heddle
  module Lab
    # Something the user can do something about; the command prints the message alone and exits with {#status}.
    class Error < StandardError
      # @return [Integer] exit status, after sysexits(3): 69, a service is unavailable
      def status = 69
    end

    # A command line that asks for what there is not.
    class UsageError < Error
      # @return [Integer] exit status 64
      def status = 64
    end
  end
end
