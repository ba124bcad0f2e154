# frozen_string_literal: true

require_relative "mysql"

module Heddle
  module DatabaseGems
    # The gem trilogy.
    class Trilogy < MySQL
      # A client that sends KILL QUERY.
      class Server < MySQL::Server
        def failures = [::Trilogy::Error]

        # @return [Client]
        def connect(seconds)
          Client.new(::Trilogy.new(options.merge(connect_timeout: seconds, read_timeout: seconds,
            write_timeout: seconds)))
        end
      end

      # Called by {DB::MySQL::Killer}.
      Client = Struct.new(:raw) do
        def thread = raw.query("SELECT CONNECTION_ID()").rows.first.first

        def marks = [nil, nil]

        def command(sql) = raw.query(sql).rows

        def close = raw.close

        def inspect = "#<Heddle::DatabaseGems::Trilogy::Client>"
      end

      # Trilogy exposes neither its socket nor its number, so the server is asked for its view of the connection. Over a
      # UNIX socket that has no port, and nothing is killed.
      QUESTION = "SELECT id, host FROM information_schema.processlist WHERE id = CONNECTION_ID()"
      private_constant :QUESTION

      def idle?(raw) = closed?(raw) || !raw.in_transaction?

      def close(raw)
        raw.close
      rescue ::Trilogy::Error # it was closed halfway
        nil
      end

      private

      # An error in a wait shuts the socket down, but Trilogy still counts the connection as open.
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
