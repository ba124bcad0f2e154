# frozen_string_literal: true

require "heddle" unless defined?(Heddle::FiberPool)
require "heddle/drivers"

module Sequel
  # The extension +heddle+: what a deadline, a cancel, Timeout.timeout, Thread#raise or Thread#kill interrupts leaves no
  # connection in the pool that is at work, closed, or inside a transaction.
  #
  #   DB.extension(:heddle)      # or, for all databases: require "heddle/sequel"
  #
  # - An interrupted query is stopped on the server. On PostgreSQL the connection is then proven clean and kept; those of
  #   mysql2 and Trilogy are closed, and the next one who needs a connection gets another. MySQL and MariaDB are told to
  #   stop the query by a connection of their own; the option <tt>kill_queries: false</tt> of Sequel.connect leaves it be.
  # - An interrupted transaction whose ROLLBACK was not answered ends with its connection.
  # - In tasks each task has a connection of its own, as with Sequel's extension +fiber_concurrency+.
  # - On SQLite the wait for a lock (the option +timeout+) stops neither other threads nor other tasks, and has deadlines.
  # - A connection that the server closed is a Sequel::DatabaseDisconnectError with Trilogy, too.
  #
  # It works with the adapters postgres (gem pg), mysql2, trilogy and sqlite, and with all of Sequel's connection pools.
  module HeddleConnections
    # Which task a connection is for.
    module Concurrency
      # @return [Fiber, Thread]
      def current = ::Heddle::Task.current ? Fiber.current : super
    end

    # A connection in the pool that nobody can use any more.
    class Closed < DatabaseDisconnectError; end

    # In front of the methods of the Sequel::Database.
    module Database
      # Every adapter's queries go through here.
      def log_connection_yield(sql, conn, args = nil)
        driver = ::Heddle.const_get(:Drivers).of(conn)
        before = $!
        done = false
        driver.prepare(conn) { {timeout: 5000}.merge(opts) }
        value = driver.query { super }
        done = true
        value
      ensure
        driver&.settled?(conn, $!.equal?(before) ? nil : $!) unless done
      end

      private

      def begin_new_transaction(conn, opts)
        pool.heddle_unfinished[conn] = true
        super
      end

      # There is nothing to roll back on a connection that is closed.
      def rollback_transaction(conn, opts = OPTS)
        super unless ::Heddle.const_get(:Drivers).of(conn).closed?(conn)
        finished(conn)
      end

      def commit_transaction(conn, opts = OPTS)
        super
        finished(conn)
      end

      def finished(conn)
        pool.heddle_unfinished.delete(conn) unless in_savepoint?(conn)
      end

      def disconnect_error?(error, opts)
        super || (defined?(::Trilogy::ConnectionError) ? error.is_a?(::Trilogy::ConnectionError) : false)
      end
    end

    # In front of the methods of its Sequel::ConnectionPool.
    module Pool
      def self.extended(pool)
        pool.instance_variable_set(:@heddle_held, {}.compare_by_identity)
        pool.instance_variable_set(:@heddle_unfinished, {}.compare_by_identity)
      end

      # The connections whose transaction has begun, and is not known to have ended.
      #
      # @api private
      attr_reader :heddle_unfinished

      # A closed connection is met by Sequel's own answer to those: it leaves the pool, and another takes its place.
      def hold(*server)
        super do |conn|
          next yield(conn) if @heddle_held.key?(conn)

          driver = ::Heddle.const_get(:Drivers).of(conn)
          raise Closed, "closed after an interrupted query" if driver.closed?(conn)

          return_clean(driver, conn) { yield conn }
        end
      rescue Closed
        retry
      end

      private

      def return_clean(driver, conn)
        before = $!
        done = false
        @heddle_held[conn] = true
        value = yield
        done = true
        value
      ensure
        begin
          settle(driver, conn, done, $!.equal?(before) ? nil : $!)
        ensure
          @heddle_held.delete(conn)
        end
      end

      def settle(driver, conn, done, error)
        clean = (done || error.nil?) ? driver.clean?(conn) : driver.settled?(conn, error)
        unfinished = @heddle_unfinished.delete(conn)
        return if clean && !unfinished && (done || driver.idle?(conn))

        driver.close(conn) unless driver.closed?(conn)
      end
    end
    private_constant :Concurrency, :Closed, :Pool
  end

  Database.register_extension(:heddle) do |db|
    Sequel.extend(HeddleConnections.const_get(:Concurrency))
    db.extend(HeddleConnections::Database)
    db.pool.extend(HeddleConnections.const_get(:Pool))
  end
end
