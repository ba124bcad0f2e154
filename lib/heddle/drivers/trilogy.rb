# frozen_string_literal: true

require_relative "mysql"

module Heddle
  module Drivers
    # The gem trilogy.
    class Trilogy < MySQL
      # A client that kills.
      class Server < MySQL::Server
        def failures = [::Trilogy::Error]

        # @return [Client]
        def connect(seconds)
          Client.new(::Trilogy.new(options.merge(connect_timeout: seconds, read_timeout: seconds, write_timeout: seconds)))
        end
      end

      # As {DB::MySQL::Killer} asks it.
      Client = Struct.new(:raw) do
        def thread = raw.query("SELECT CONNECTION_ID()").rows.first.first

        def marks = [nil, nil]

        def command(sql) = raw.query(sql).rows

        def close = raw.close

        def inspect = "#<Heddle::Drivers::Trilogy::Client>"
      end

      # It gives neither its socket nor its number away, so the server is asked how it knows the connection. That has no
      # port, and nothing is killed, where the server is at a UNIX socket.
      QUESTION = "SELECT id, host FROM information_schema.processlist WHERE id = CONNECTION_ID()"
      private_constant :QUESTION

      def idle?(raw) = closed?(raw) || !raw.in_transaction?

      def close(raw)
        raw.close
      rescue ::Trilogy::Error # it was closed halfway
        nil
      end

      private

      # An error in a wait shuts its socket down, without which it still counts as open.
      def answers?(raw)
        Heddle.shield(TIME) { raw.ping }
      rescue ::Trilogy::Error, Timeout::Error, IOError, SystemCallError
        false
      end

      def identify(raw)
        thread, host = raw.query(QUESTION).rows.first
        [thread, [host && host[/:(\d+)\z/, 1]&.to_i, nil]]
      end

      def answer?(error) = error.is_a?(::Trilogy::Error) && !error.is_a?(::Trilogy::TimeoutError)

      def server(raw, _settings) = Server.new(raw.connection_options)
    end
  end
end
