# frozen_string_literal: true

require_relative "../db"
require_relative "../db/mysql"

module Heddle
  module Drivers
    # What the two gems for MySQL and MariaDB have in common: after an interrupt their connection is of no use to anybody. It
    # is closed, and the server is told to stop the query.
    class MySQL
      # Where a connection leads, and how the server knows it, for KILL QUERY.
      Identity = Struct.new(:server, :thread, :marks)
      private_constant :Identity

      # A connection like another one, which kills that one's query. What the {DB::MySQL::Killer} needs.
      #
      # @abstract
      class Server
        attr_reader :options

        # @param options [Hash] what the other connection was made with
        def initialize(options)
          @options = options
        end

        def ==(other) = other.instance_of?(self.class) && other.options == options

        # Without the password, which is among the options.
        def inspect = "#<#{self.class}>"
      end

      IDENTITY = :@heddle_identity
      private_constant :IDENTITY

      def prepare(raw)
        return if raw.instance_variable_defined?(IDENTITY)

        raw.instance_variable_set(IDENTITY, nil)
        settings = yield
        return if [false, "false"].include?(settings[:kill_queries])

        raw.instance_variable_set(IDENTITY, Identity.new(server(raw, settings), *identify(raw)))
      end

      def query = yield

      # The gems close what an exception interrupts in a wait. What strikes elsewhere, and the end of a thread, leave nobody
      # knowing what is owed.
      def settled?(raw, error)
        told = told?(error)
        close(raw) if Drivers.struck?(error) || !(told || closed?(raw) || answers?(raw))
        return true unless closed?(raw)

        kill(raw) unless told
        false
      end

      def clean?(raw)
        close(raw) if Drivers.struck?(nil)
        !closed?(raw)
      end

      def closed?(raw) = raw.closed?

      private

      # Has the server, or the lost connection, answered the query?
      def told?(error)
        while error
          return true if answer?(error)

          error = error.cause
        end
        false
      end

      def kill(raw)
        identity = raw.instance_variable_get(IDENTITY) || return
        raw.instance_variable_set(IDENTITY, nil)
        DB::MySQL::Killer.kill(*identity)
      end
    end
  end
end
