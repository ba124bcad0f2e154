# frozen_string_literal: true

require_relative "../../heddle"
require "heddle/integrations/database_gems"

module Sequel
  # The extension +heddle+: after an interrupt by a deadline, a cancel, Timeout.timeout, Thread#raise or Thread#kill, no
  # connection returns to the pool while it runs a query, is closed, or is inside a transaction.
  #
  #   DB.extension(:heddle)      # or, for all databases: require "heddle/sequel"
  #
  # - An interrupted query is stopped on the server. On PostgreSQL the connection is then proven clean and kept; those
  #   of mysql2 and Trilogy are closed, and the next caller gets another. For MySQL and MariaDB a second connection
  #   tells the server to stop the query; the option <tt>kill_queries: false</tt> of Sequel.connect disables that.
  # - If the ROLLBACK of an interrupted transaction gets no answer, the connection is closed.
  # - In tasks each task has a connection of its own, as with Sequel's extension +fiber_concurrency+.
  # - On SQLite the wait for a lock (the option +timeout+) stops neither other threads nor other tasks, and has
  #   deadlines.
  # - A connection that the server closed is a Sequel::DatabaseDisconnectError with Trilogy, too.
  #
  # Works with the adapters postgres (gem pg), mysql2, trilogy and sqlite, and with all of Sequel's connection pools.
  module HeddleConnections
    DATABASE_GEMS = ::Heddle.const_get(:DatabaseGems)

    # Identifies the owner of a connection.
    module Concurrency
      # @return [Fiber, Thread]
      def current = ::Heddle::Task.current ? Fiber.current : super
    end

    # An unusable connection was found in the pool.
    class Closed < DatabaseDisconnectError; end

    # Prepended to the methods of the Sequel::Database, except with Heddle's own adapters: their connections stop an
    # interrupted query themselves.
    module Queries
      # Every adapter calls this for its queries.
      def log_connection_yield(sql, conn, args = nil)
        gem = DATABASE_GEMS.of(conn)
        before = $!
        done = false
        gem.prepare(conn) { {timeout: 5000}.merge(opts) }
        value = gem.query { super }
        done = true
        value
      ensure
        gem&.settled?(conn, $!.equal?(before) ? nil : $!) unless done
      end
    end

    # Prepended to the methods of the Sequel::Database.
    module Database
      private

      def begin_new_transaction(conn, opts)
        pool.heddle_unfinished[conn] = true
        super
      end

      # A closed connection has no transaction to roll back.
      def rollback_transaction(conn, opts = OPTS)
        super unless DATABASE_GEMS.of(conn).closed?(conn)
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
        super || (Object.const_defined?("Trilogy::ConnectionError") ? error.is_a?(::Trilogy::ConnectionError) : false)
      end
    end

    # Prepended to the methods of its Sequel::ConnectionPool.
    module Pool
      def self.extended(pool)
        pool.instance_variable_set(:@heddle_held, {}.compare_by_identity)
        pool.instance_variable_set(:@heddle_unfinished, {}.compare_by_identity)
      end

      # The connections whose transaction has begun, and may not have ended.
      #
      # @api private
      attr_reader :heddle_unfinished

      # Lets Sequel handle a closed connection as usual: it removes the connection from the pool, and makes another.
      def hold(server = :default)
        super do |conn|
          next yield(conn) if @heddle_held.key?(conn)

          gem = DATABASE_GEMS.of(conn)
          raise Closed, "closed after an interrupted query" if gem.closed?(conn)

          before = $!
          done = false
          begin
            @heddle_held[conn] = true
            value = yield conn
            done = true
            value
          ensure
            begin
              unless done && gem.clean?(conn) && !@heddle_unfinished.key?(conn)
                settle(gem, conn, done, $!.equal?(before) ? nil : $!)
              end
            ensure
              @heddle_held.delete(conn)
            end
          end
        end
      rescue Closed
        heddle_let_go(server)
        retry
      end

      private

      # In a task whose deadline has passed each wait fails, also that for the lock: Sequel would then keep the
      # connection for the task for ever, which it is about to take back. It waits with this lock for others' turn.
      def sync
        return super unless ::Heddle::Task.current

        begin
          @mutex.try_lock || ::Heddle.shield(DATABASE_GEMS::TIME) { @mutex.lock }
          yield
        ensure
          @mutex.unlock if @mutex.owned?
        end
      end

      # A thread that was interrupted while Sequel lent it a connection (Thread#raise, Timeout) still has that one, and
      # is lent it again and again. It goes back to the others, where Sequel meets it.
      def heddle_let_go(server)
        return unless respond_to?(:owned_connection, true) # pools of a single connection

        holder = Sequel.current
        shard = [pick_server(server)] if method(:owned_connection).arity == 2
        return unless (conn = owned_connection(holder, *shard))

        lease = shard ? [holder, conn, *shard] : [holder]
        pool_type.end_with?("timed_queue") ? release(*lease) : sync { release(*lease) }
      end

      # Sequel turns every exception of a connect into its own StandardError. A program that rescues it would keep a
      # cancelled task alive, and go on after a Timeout or an Interrupt.
      def make_new(*)
        super
      rescue ::Sequel::DatabaseConnectionError => error
        case error.wrapped_exception
        when nil, ::StandardError, ::ScriptError then raise
        else raise error.wrapped_exception
        end
      end

      def settle(gem, conn, done, error)
        clean = (done || error.nil?) ? gem.clean?(conn) : gem.settled?(conn, error)
        unfinished = @heddle_unfinished.delete(conn)
        return if clean && !unfinished && (done || gem.idle?(conn))

        gem.close(conn) unless gem.closed?(conn)
      end
    end
    private_constant :DATABASE_GEMS, :Concurrency, :Closed, :Queries, :Pool
  end

  Database.register_extension(:heddle) do |db|
    Sequel.extend(HeddleConnections.const_get(:Concurrency))
    db.extend(HeddleConnections::Database)
    own = defined?(HeddleAdapter) && db.is_a?(HeddleAdapter::DatabaseMethods)
    db.extend(HeddleConnections.const_get(:Queries)) unless own
    db.pool.extend(HeddleConnections.const_get(:Pool))
  end
end
