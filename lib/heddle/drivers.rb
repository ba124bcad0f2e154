# frozen_string_literal: true

module Heddle
  # The connections of other gems to databases, and what becomes of one whose query was interrupted: by a deadline, a
  # cancel, Timeout.timeout, Thread#raise, Thread#kill. Neither ActiveRecord nor Sequel look after it: the connection
  # goes back to its pool with its query running, or closed.
  #
  # One file a gem, loaded with the first connection of that gem. Each says of a connection:
  #
  # [prepare]  Makes it ready for {Drivers} before its first query; the block returns the settings (Hash) that the
  #            program made it with.
  # [query]    Calls its block, which talks to the database.
  # [settled?] Stops what a query left running that did not return, but left by an error, or by none (a throw, the end of
  #            its thread). Is it clean, and may it be used as it is?
  # [clean?]   The same where no query is known to have been interrupted.
  # [closed?]  Is it closed?
  # [idle?]    As far as the driver knows: does the server work for it, or keep a transaction open for it?
  # [close]    Closes it, whatever state it is in.
  #
  # @api private
  module Drivers
    # Seconds for the cancel of a query, the rest of its answer and the proof. A connection that takes longer is closed.
    TIME = 2

    # A connection of a gem that is not known here: it is left alone.
    class Unknown
      def prepare(_raw) = nil

      def query = yield

      def settled?(_raw, _error) = true

      def clean?(_raw) = true

      def closed?(_raw) = false

      def idle?(_raw) = true

      def close(_raw) = nil
    end

    GEMS = {"PG::Connection" => [:PG, "pg"], "Mysql2::Client" => [:Mysql2, "mysql2"], "Trilogy" => [:Trilogy, "trilogy"],
            "SQLite3::Database" => [:SQLite3, "sqlite3"]}.freeze
    private_constant :Unknown, :GEMS

    @of = {}.compare_by_identity

    class << self
      # @param raw [Object] a connection of whichever gem; nil: there is none
      # @return [Object] what knows its gem
      def of(raw) = @of[raw.class] || (@of = @of.merge(raw.class => find(raw.class)).compare_by_identity)[raw.class]

      # Did this end a query in its middle? An error that the server or the driver reports did not.
      #
      # @param error [Exception, nil] what left the query; nil: no exception did, as at the end of a thread
      def struck?(error)
        return Thread.current.status == "aborting" unless error

        !error.is_a?(StandardError) || error.is_a?(::Timeout::Error)
      end

      private

      def find(klass)
        _, (constant, file) = GEMS.find { |name, _| klass.ancestors.any? { |ancestor| ancestor.name == name } }
        return Unknown.new unless constant

        require_relative "drivers/#{file}"
        const_get(constant, false).new
      end
    end
  end
  private_constant :Drivers
end
