# frozen_string_literal: true

module Heddle
  module DB
    # Lends a bounded number of connections to fibers and threads, in the order of their requests.
    #
    # @example
    #   pool = Heddle::DB::Pool.new("mysql://…", size: 10, timeout: 2)
    #   pool.with { |db| db.query("select 1") }
    #   pool.query_value("select name from t where id = ?", 7)
    class Pool
      include QueryListeners

      NONE = [].freeze
      # Seconds to wait for a free connection, without other timeouts.
      CHECKOUT_TIMEOUT = 5
      # Seconds to wait for the lock in order to return a connection, even after a deadline has passed. The lock is held
      # for microseconds, but the thread that holds it may get no processor.
      LOCK_SECONDS = 60
      # In a plain thread Thread#raise, Thread#kill and Timeout.timeout may strike at the end of each call; while the
      # pool's books change, they strike in waits alone. In tasks everything does so anyway, and a mask would be the
      # whole thread's, with all its tasks.
      IN_WAITS = {Object => :on_blocking}.freeze
      NEVER = {Object => :never}.freeze
      private_constant :NONE, :CHECKOUT_TIMEOUT, :LOCK_SECONDS, :IN_WAITS, :NEVER

      # A caller's share of the pool. +held+: a connection, :make for the right to make one, or nil. +handed_over+:
      # whether the last user has just handed the connection over.
      #
      # @api private
      Place = Struct.new(:held, :handed_over)
      private_constant :Place

      # @return [Integer] the most connections
      attr_reader :size

      # @param url [String] see {DB.connect}
      # @param size [Integer] the most connections
      # @param checkout_timeout [Numeric, nil] seconds to wait for a free connection; nil: for ever. The default is
      #   +timeout+, or 5 without a +timeout+
      # @param idle [Numeric, nil] seconds after which an unused connection is closed; nil: never
      # @param min [Integer] how many connections stay open although they are unused
      # @param max_lifetime [Numeric, nil] seconds after which a connection is closed once it is unused; up to a tenth
      #   earlier, so that not all connections end at once; nil: never
      # @param options see {DB.connect}
      # @raise [ArgumentError] see {DB.connect}; opens no connection yet
      def initialize(url, size: 10, checkout_timeout: (unset = true), idle: 300, min: 0,
        max_lifetime: nil, **options)
        settings = DB.settings(url, options)
        @connect = -> { DB.connect_with(*settings) }
        @size = Options.count(:size, size)
        @checkout_timeout = if unset
          settings.last[:timeout] || CHECKOUT_TIMEOUT
        else
          Options.seconds(:checkout_timeout, checkout_timeout)
        end
        @idle = Options.seconds(:idle, idle)
        @min = Options.at_most(:min, min, @size)
        @max_lifetime = Options.seconds(:max_lifetime, max_lifetime)
        @lock = Thread::Mutex.new
        @free = [] # [connection, since when], the one used last at the end
        @waiting = {}.compare_by_identity # queues as keys; the first caller is served first
        @made = 0
        @joined = {}.compare_by_identity # tasks, fibers and threads in a transaction, with its connection
        @closed = false
        @forks = Heddle.forks
      end

      # Lends the block a connection that no other task or thread uses meanwhile. In a transaction of the calling task
      # or thread, this is the transaction's connection. Before the next user gets the connection, the pool restores the
      # session's state (variables, the database, locks, temporary tables), and ends the connection's own handlers of
      # {Connection#on_query} and {Connection#on_notice}.
      #
      # @yieldparam connection [Connection]
      # @return the block's value
      # @raise [PoolTimeout] when none becomes free in time; [PoolClosed]; see {DB.connect}
      def with(&block)
        raise ArgumentError, "Pool#with needs a block: pool.with { |db| … }" unless block_given?

        joined = @joined[Transactions.holder] unless @joined.empty?
        return yield joined if joined && !joined.forked?

        place = Place.new
        DroppedFiber.hold(self, place) { lend_in(place, &block) }
      end

      # @api private for {DroppedFiber}
      def take_back(place) = check_in(place)

      # @!method query(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Result] see {Connection#query}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method exec(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Integer] see {Connection#exec}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method query_value(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Object] see {Connection#query_value}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method query_maybe_value(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Object, nil] see {Connection#query_maybe_value}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method query_row(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Array] see {Connection#query_row}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method query_maybe_row(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Array, nil] see {Connection#query_maybe_row}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      # @!method query_list(sql, *arguments)
      #   On a connection of the pool.
      #   @return [Array] see {Connection#query_list}
      #   @raise [PoolTimeout, PoolClosed] see {#with}
      %i[query exec query_value query_maybe_value query_row query_maybe_row query_list].each do |name|
        define_method(name) { |sql, *arguments| with { |connection| connection.public_send(name, sql, *arguments) } }
        ruby2_keywords(name)
      end

      # Without a block returns an Enumerator, which holds a connection from its first row to its last, or until its
      # reader stops. After Enumerator#next that is when the GC has collected the Enumerator.
      #
      # @see Connection#each_row
      def each_row(sql, *arguments, **named, &block)
        return enum_for(:each_row, sql, *arguments, **named) unless block

        with { |connection| connection.each_row(sql, *arguments, **named, &block) }
        self
      end

      # @see Connection#list_tables
      def list_tables(schema: nil)
        with { |connection| connection.list_tables(schema: schema) }
      end

      # @see Connection#table_exists?
      def table_exists?(name, schema: nil)
        with { |connection| connection.table_exists?(name, schema: schema) }
      end

      # A statement that each connection of the pool prepares when it first runs it, and keeps prepared, among the
      # statements of +statement_cache_size+, unless +statement_cache+ is :never. Sends nothing yet: an error of the SQL
      # is raised when the statement runs.
      #
      # @param sql [String, VirtualStatement]
      # @return [PoolStatement]
      def prepare(sql)
        PoolStatement.of(self, sql)
      end

      # @see Connection#transaction
      def transaction(**options)
        raise ArgumentError, "a transaction needs a block: pool.transaction { |db| … }" unless block_given?

        with { |connection| connection.transaction(**options) { yield connection } }
      end

      # @see Connection#pipeline
      def pipeline(**options, &block)
        with { |connection| connection.pipeline(**options, &block) }
      end

      # @return [Hash] how many connections there are, are free, and are waited for
      def stats
        @lock.synchronize do
          forget_parents
          {connections: @made, free: @free.size, waiting: @waiting.size}
        end
      end

      # Closes the free connections now, and each other connection when it is returned. Waiting callers get PoolClosed.
      def close
        free = settle do
          @closed = true
          @waiting.each_key { |queue| queue << :closed }
          @waiting.clear
          @free.dup.tap { @free.clear }
        end
        free.each { |connection, _| discard(connection) }
        nil
      end

      # @return [Boolean]
      def closed?
        @closed
      end

      # @api private Notes that a connection of the pool begins a transaction, which its holder's later calls join.
      def enter(holder, connection)
        @joined[holder] = connection
      end

      # @api private whether the calling task or thread is in a transaction of this pool
      def joined? = !@joined.empty? && !@joined[Transactions.holder].nil?

      # @api private its transaction is over
      def leave(connection)
        # Not by delete_if, in whose block other threads may run, and enter.
        while (holder = @joined.key(connection))
          @joined.delete(holder)
        end
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@made} of #{@size}, #{@free.size} free, #{@waiting.size} waiting#{" closed" if @closed}>"
      end

      private

      def lend_in(place)
        in_thread = Fiber.current_scheduler.nil?
        begin
          if in_thread
            Thread.handle_interrupt(IN_WAITS) { check_out(place) }
          else
            check_out(place)
          end
          yield connected(place)
        ensure
          # No call stands before the mask: an exception could strike at its end.
          if in_thread
            Thread.handle_interrupt(IN_WAITS) { check_in(place) }
          else
            check_in(place)
          end
        end
      end

      def check_out(place)
        found, stale = take
        if found.is_a?(Thread::Queue)
          place.held = wait(found)
          place.handed_over = true
        else
          place.held = found
          stale.each { |connection| discard(connection) }
        end
      end

      # A connection, :make for the right to make one, or a queue to wait at; and connections that are to be closed.
      def take
        @lock.synchronize do
          raise PoolClosed, "this pool of connections is closed" if @closed

          forget_parents
          stale = drop_idle
          if (connection, _ = @free.pop)
            [connection, stale]
          elsif @made < @size
            @made += 1
            [:make, stale]
          else
            [Thread::Queue.new.tap { |queue| @waiting[queue] = true }, NONE]
          end
        end
      end

      def wait(queue)
        found = Heddle.deadline(@checkout_timeout) { queue.pop }
        raise PoolClosed, "this pool of connections is closed" if found == :closed

        taken = found
      rescue DeadlineExceeded
        raise unless waited_in_vain?

        raise PoolTimeout, "none of #{@size} connections became free in #{@checkout_timeout} s: make the pool larger " \
          "(size:), or hold connections for less time"
      ensure
        stop_waiting(queue) unless taken
      end

      # Whether the pool's own limit is over, and not a deadline around the call.
      def waited_in_vain?
        remaining = Heddle.remaining
        remaining.nil? || remaining > 0
      end

      # A caller that stops waiting passes on what was put into its queue.
      def stop_waiting(queue)
        settle { @waiting.delete(queue) }
        found = queue.empty? ? nil : queue.pop(true)
        return if found.nil? || found == :closed

        pass_on(found)
      end

      # The connection that is there, if it is good, or a new one.
      def connected(place)
        found = place.held
        unless found == :make
          # A connection that was in use a moment ago has not been idle while its server was restarted.
          return lend(found) if place.handed_over || (found.healthy? && !worn_out?(found))

          place.held = :make
          discard(found)
        end
        place.held = lend(@connect.call)
      end

      def lend(connection)
        connection.pool = self
        connection.lease = nil
        connection
      end

      # Runs also after an exception.
      def check_in(place)
        held = place.held
        place.held = nil
        if held == :make
          pass_on(:make)
        elsif held
          give_back(held)
        end
      end

      def give_back(connection)
        return connection.close if connection.forked? # its place is in the parent's pool

        leave(connection) unless @joined.empty?
        begin
          reusable = reusable?(connection)
        ensure
          reusable ? pass_on(connection) : throw_away(connection)
        end
      end

      # Sends many pending closes now, unless the next request of a caller can take them along.
      def reusable?(connection)
        return false if @closed || worn_out?(connection) || !connection.at_rest? # the next holder asks the system, too

        return false unless connection.tidy

        connection.rest if @waiting.empty?
        connection.lease = :none
        true
      rescue Error, DeadlineExceeded, SystemCallError, IOError
        false
      end

      # Gives a connection, or the right to make one, to the longest waiter.
      def pass_on(what)
        closes = false
        settle do
          forget_parents if what == :make # a connection is one of this process
          if (queue, _ = @waiting.shift)
            queue << what
          elsif what == :make
            @made -= 1 if @made > 0
          elsif @closed
            @made -= 1
            closes = true # without the lock: a close may wait
          else
            @free << [what, Clock.now]
          end
        end
        discard(what) if closes
      end

      # Calls the block under the lock. No exception may strike before: a place that is not put back is lost to the
      # pool. In tasks exceptions strike only in waits, so a free lock needs no shield.
      def settle(&block)
        if Fiber.current_scheduler
          return Heddle.shield(LOCK_SECONDS) { @lock.synchronize(&block) } unless @lock.try_lock

          begin
            return yield
          ensure
            @lock.unlock
          end
        end

        Thread.handle_interrupt(NEVER) { Heddle.shield(LOCK_SECONDS) { @lock.synchronize(&block) } }
      end

      # The connection's place is free for another. The last user is told that the connection was returned, not that it
      # is closed.
      def throw_away(connection)
        connection.lease = :none
        discard(connection)
      ensure
        pass_on(:make)
      end

      def discard(connection)
        connection.close
      rescue Error, DeadlineExceeded, SystemCallError, IOError
        nil
      end

      def drop_idle
        return NONE unless @idle && (oldest = @free.first) && oldest[1] < (limit = Clock.now - @idle)

        stale = @free.take_while { |_, since| since < limit }
        stale = stale.first([@made - @min, 0].max) if @min > 0
        @free.shift(stale.size)
        @made -= stale.size
        stale.map(&:first)
      end

      # Whether the connection has lived for max_lifetime. It ends up to a tenth earlier, so that connections that were
      # opened together do not end together.
      def worn_out?(connection)
        return false unless @max_lifetime

        connection.age > @max_lifetime * (1 - ((connection.object_id >> 3) % 8) / 80.0)
      end

      # A child of fork must not use its parent's connections.
      def forget_parents
        return if @forks == Heddle.forks

        @forks = Heddle.forks
        @free.each { |connection, _| connection.close }
        @free.clear
        @joined.clear
        @waiting.clear
        @made = 0
      end
    end
  end
end
