# frozen_string_literal: true

require_relative "../resource_pool"

module Heddle
  module DB
    # Lends a bounded number of connections to fibers and threads, in the order of their requests.
    #
    # @example
    #   pool = Heddle::DB::Pool.new("mysql://…", size: 10, timeout: 2)
    #   pool.with { |db| db.query("select 1") }
    #   pool.query_value("select name from t where id = ?", 7)
    class Pool < ResourcePool
      include Queries
      include PoolCalls
      include QueryListeners

      # Seconds to wait for a free connection, without other timeouts.
      CHECKOUT_TIMEOUT = 5
      private_constant :CHECKOUT_TIMEOUT

      # @param url [String] see {DB.connect}
      # @param size [Integer] the most connections
      # @param checkout_timeout [Numeric, nil] seconds to wait for a free connection; nil: for ever. The default is
      #   +timeout+, or 5 without a +timeout+
      # @param idle [Numeric, nil] seconds after which an unused connection is closed; nil: never
      # @param min [Integer] how many connections stay open although they are unused
      # @param max_lifetime [Numeric, nil] seconds after which a connection is closed once it is unused; up to a tenth
      #   earlier, so that not all connections end at once; nil: never
      # @param multiplex [Integer, nil] the most statements of different tasks in flight on one connection, from 1 to
      #   100; nil: each statement has a connection of its own. For PostgreSQL and MariaDB, see {#query}
      # @param options see {DB.connect}
      # @raise [ArgumentError] see {DB.connect}; opens no connection yet
      def initialize(url, size: 10, checkout_timeout: (unset = true), idle: 300, min: 0,
        max_lifetime: nil, multiplex: nil, **options)
        settings = DB.settings(url, options)
        @connect = -> { DB.connect_with(*settings) }
        @checkout_timeout = if unset
          settings.last[:timeout] || CHECKOUT_TIMEOUT
        else
          Options.seconds(:checkout_timeout, checkout_timeout)
        end
        set_up(size = Options.count(:size, size), @checkout_timeout, Options.seconds(:idle, idle),
          Options.within(:min, min, 0..size), Options.seconds(:max_lifetime, max_lifetime))
        @multiplexer = multiplexer(settings.first, multiplex) if multiplex
        @joined = {}.compare_by_identity # tasks, fibers and threads in a transaction, with its connection
      end

      # Lends the block a connection that no other task or thread uses meanwhile. In a transaction of the calling task
      # or thread, this is the transaction's connection. Before the next user gets the connection, the pool restores the
      # session's state (variables, the database, locks, temporary tables), and ends the connection's own handlers of
      # {Connection#on_query} and {Connection#on_notice}.
      #
      # @yieldparam connection [Connection]
      # @return the block's value
      # @raise [PoolTimeout] when none becomes free in time; [PoolClosed]; see {DB.connect}
      def with
        raise ArgumentError, "Pool#with needs a block: pool.with { |db| … }" unless block_given?

        if !@joined.empty? && (joined = @joined[Connection.holder])
          return yield joined unless joined.forked?

          @joined.clear # of the parent's
        end
        super
      end

      # On a connection of the pool.
      #
      # With +multiplex+ the statements of several tasks share a connection, in flight together, unless they may change
      # the session or stand in a transaction. If a task's time ends first, its answer is thrown away when it comes; the
      # server is told to stop the statement only if no other task's is in flight on that connection.
      #
      # @return [Result] see {Connection#query}
      # @raise [PoolTimeout, PoolClosed] see {#with}
      def query(sql, *arguments)
        (@multiplexer && multiplexed(sql, arguments)) || with { |connection| connection.query(sql, *arguments) }
      end
      ruby2_keywords :query

      # @return [Hash] how many connections there are, are free, and are waited for
      def stats
        connections, free, waiting = counts
        {connections: connections, free: free, waiting: waiting + (@multiplexer ? @multiplexer.waiting : 0)}
      end

      # @see ResourcePool#close
      def close
        super
      ensure
        @multiplexer&.refuse
      end

      # Notes that a connection of the pool begins a transaction, which its holder's later calls join.
      #
      # @api private
      def enter(holder, connection)
        @joined[holder] = connection
      end

      # @api private whether the calling task or thread is in a transaction of this pool
      def joined? = !@joined.empty? && !@joined[Connection.holder].nil?

      # @api private its transaction is over
      def leave(connection)
        # Not by delete_if, in whose block other threads may run, and enter.
        while (holder = @joined.key(connection))
          @joined.delete(holder)
        end
      end

      private

      # ---- for PoolCalls: each connection reads and writes

      def reader = self
      def writer = self
      def pool_for(_sql) = self

      # ---- statements that share connections

      # The most statements in flight on a connection.
      MOST_MULTIPLEXED = 100
      private_constant :MOST_MULTIPLEXED

      def multiplexer(driver, most)
        unless driver.respond_to?(:multiplexes?)
          raise ArgumentError, "multiplex: is not for this database: #{driver} has one statement at a time in flight " \
            "on a connection"
        end

        Multiplexer.new(self, Options.within(:multiplex, most, 1..MOST_MULTIPLEXED))
      end

      # @return [Result, nil] nil for a statement that needs a connection of its own
      def multiplexed(sql, arguments)
        return if joined?
        return if VirtualStatement === sql # each connection keeps it prepared for itself

        if !(String === sql) || Hash === arguments.last
          return unless (sample = @multiplexer.sample)

          sql, arguments = sample.resolved(sql, arguments)
        end
        return @multiplexer.run(sql, arguments) unless (watch = QueryWatch.for(sql, self, DB))

        value = watch.measure { @multiplexer.run(sql, arguments) }
        watch.done(value) if value
        value
      end

      # Only the server tells what it is.
      def check_multiplexing(connection)
        driver = connection.driver
        return unless (reason = driver.multiplexing_refusal)

        connection.close
        raise ArgumentError, "multiplex: is not for #{driver.description} (#{driver.version}): #{reason}"
      end

      # ---- for ResourcePool

      def make
        connection = @connect.call
        check_multiplexing(connection) if @multiplexer
        lend(connection)
      end

      # A connection that is handed over from its last user was in use just now, and needs no system call.
      def check(connection, handed_over)
        return if @multiplexer && !connection.drop_replies

        lend(connection) if handed_over || connection.healthy?
      end

      def lend(connection)
        connection.check_out(self)
        connection
      end

      # Sends many pending closes now, unless the next request of a caller can take them along.
      def reset(connection)
        leave(connection) unless @joined.empty?
        return true if @multiplexer && connection.replies_to_drop? # by the next user
        # at_rest? asks only the client's state. Whether the socket is still open is asked at the next check-out.
        return false unless connection.at_rest? && connection.reset

        connection.flush_many_closes if waiting.zero?
        true
      rescue Error, DeadlineExceeded, SystemCallError, IOError
        false
      ensure
        connection.check_in
      end

      # The last user is told that the connection was returned, not that it is closed. Nobody else would close it after
      # an interrupt: it would stay open, and its transaction with it, until the GC comes.
      def dispose(connection)
        begin
          leave(connection) unless @joined.empty?
          connection.check_in
        ensure
          connection.close
        end
      rescue Error, DeadlineExceeded, SystemCallError, IOError
        nil
      end

      def detach(connection) = connection.close

      def exhausted(closed)
        raise PoolClosed, "this pool of connections is closed" if closed

        raise PoolTimeout, "none of #{size} connections became free in #{@checkout_timeout} s: make the pool larger " \
          "(size:), or hold connections for less time"
      end
    end
  end
end
