# frozen_string_literal: true

require_relative "../../db"
require_relative "../../db/mysql"

module Heddle
  module DatabaseGems
    # The common part of the two gems for MySQL and MariaDB: after an interrupt a connection is unusable. It is closed,
    # and KILL QUERY stops the query on the server.
    class MySQL
      # A connection's address, and the server's number for it, for KILL QUERY.
      Identity = Struct.new(:server, :thread, :marks)
      private_constant :Identity

      # A second connection that kills the query of a first, as {DB::MySQL::Killer} needs it.
      #
      # @abstract
      class Server
        attr_reader :options

        # @param options [Hash] the options of the first connection
        def initialize(options)
          @options = options
        end

        def ==(other) = other.instance_of?(self.class) && other.options == options

        # Hides the password, which is among the options.
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

      # The gems close a connection if an exception interrupts a wait. After an exception elsewhere, or the end of a
      # thread, it is unknown whether an answer is outstanding.
      def settled?(raw, error)
        told = told?(error)
        close(raw) if DatabaseGems.interrupted?(error) || !(told || closed?(raw) || answers?(raw))
        return true unless closed?(raw)

        kill(raw) unless told
        false
      end

      def clean?(raw)
        close(raw) if DatabaseGems.interrupted?(nil)
        !closed?(raw)
      end

      def closed?(raw) = raw.closed?

      private

      # Whether the server answered the query, or the connection is lost.
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
