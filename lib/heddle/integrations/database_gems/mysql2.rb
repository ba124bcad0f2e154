# frozen_string_literal: true

require_relative "mysql"

module Heddle
  module DatabaseGems
    # The gem mysql2.
    class Mysql2 < MySQL
      # A client that sends KILL QUERY.
      class Server < MySQL::Server
        def failures = [::Mysql2::Error]

        # @return [Client]
        def connect(seconds)
          limits = {connect_timeout: seconds, read_timeout: seconds, write_timeout: seconds}
          Client.new(::Mysql2::Client.new(options.merge(limits, as: :array, reconnect: false, init_command: nil)))
        end
      end

      # Called by {DB::MySQL::Killer}.
      Client = Struct.new(:raw) do
        def thread = raw.thread_id

        def marks = Mysql2.marks(raw)

        def command(sql) = raw.query(sql).to_a

        def close = raw.close

        def inspect = "#<Heddle::DatabaseGems::Mysql2::Client>"
      end

      # @return [Array] see {DB::MySQL::Killer.marks}
      def self.marks(raw)
        DB::MySQL::Killer.marks(BasicSocket.for_fd(raw.socket).tap { |socket| socket.autoclose = false })
      end

      def idle?(_raw) = true

      def close(raw) = raw.close

      private

      # mysql2 closes the connection after any error in a wait.
      def answers?(_raw) = true

      def identify(raw) = [raw.thread_id, Mysql2.marks(raw)]

      def answer?(error)
        error.is_a?(::Mysql2::Error) && !error.is_a?(::Mysql2::Error::TimeoutError) && !unusable?(error)
      end

      # The error of heddle/mysql2 for a client whose call was interrupted.
      def unusable?(error) = error.is_a?(Heddle::Error)

      # mysql2 has forgotten the password.
      def server(raw, settings) = Server.new(raw.query_options.merge(settings.slice(:password)))
    end
  end
end
