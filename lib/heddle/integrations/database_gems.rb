# frozen_string_literal: true

module Heddle
  # Repairs connections of other gems to databases after an interrupted query: by a deadline, a cancel, Timeout.timeout,
  # Thread#raise or Thread#kill. ActiveRecord and Sequel do not: they return the connection to its pool with the query
  # still running, or closed.
  #
  # Each gem has one file, which is loaded with the first connection of that gem, and defines these methods:
  #
  # [prepare]  Prepares a connection before its first query; the block returns the settings (Hash) with which the
  #            program made the connection.
  # [query]    Calls its block, which talks to the database.
  # [settled?] Stops a query that did not return: an error left it, or a throw, or the end of its thread. Returns
  #            whether the connection is clean and may be used again.
  # [clean?]   Whether the connection is clean, where no query is known to have been interrupted.
  # [closed?]  Whether the connection is closed.
  # [idle?]    Whether, as far as the gem knows, the server neither works for the connection nor keeps a transaction
  #            open for it.
  # [close]    Closes the connection in any state.
  #
  # @api private
  module DatabaseGems
    # Seconds to cancel a query, read the rest of its answer and check the connection. A slower connection is closed.
    TIME = 2

    # A connection of an unknown gem: Heddle does not touch it.
    class Unknown
      def prepare(_raw) = nil

      def query = yield

      def settled?(_raw, _error) = true

      def clean?(_raw) = true

      def closed?(_raw) = false

      def idle?(_raw) = true

      def close(_raw) = nil
    end

    # By the class of a connection, which is all that Sequel and ActiveRecord show; {DB::Databases} knows addresses.
    GEMS = {
      "PG::Connection" => [:PG, "pg"], "Mysql2::Client" => [:Mysql2, "mysql2"], "Trilogy" => [:Trilogy, "trilogy"],
      "SQLite3::Database" => [:SQLite3, "sqlite3"], "Heddle::DB::Connection" => [:HeddleClient, "heddle_client"]
    }.freeze
    private_constant :Unknown, :GEMS

    @of = {}.compare_by_identity

    class << self
      # @param raw [Object, nil] a connection of any gem, or nil
      # @return [Object] what knows the connections of that gem
      def of(raw) = @of[raw.class] || (@of = @of.merge(raw.class => find(raw.class)).compare_by_identity)[raw.class]

      # Returns whether the error interrupted a query. An error that the server or the gem reports did not.
      #
      # @param error [Exception, nil] the error that left the query; nil without one, as at the end of a thread
      def interrupted?(error)
        return Thread.current.status == "aborting" unless error

        !error.is_a?(StandardError) || error.is_a?(::Timeout::Error)
      end

      private

      def find(klass)
        _, (constant, file) = GEMS.find { |name, _| klass.ancestors.any? { |ancestor| ancestor.name == name } }
        return Unknown.new unless constant

        require_relative "database_gems/#{file}"
        const_get(constant, false).new
      end
    end
  end
  private_constant :DatabaseGems
end
