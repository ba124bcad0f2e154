# frozen_string_literal: true

module Heddle
  module Lab
    # An error that the user can correct; the command prints only the message and exits with {#status}.
    class Error < StandardError
      # Has what the block raises name the file that it reads.
      # @param file [String]
      # @raise [Error]
      def self.in(file)
        yield
      rescue SystemCallError => error
        raise Error, "cannot read #{file}: #{error.message}"
      rescue Error => error
        raise error.class, "#{file}: #{error.message}"
      end

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
