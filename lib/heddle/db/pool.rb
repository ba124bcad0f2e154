# frozen_string_literal: true

module Heddle
  module DB
    # Connections that fibers and threads take turns with: at most so many, given out in the order in which they were asked for.
    #
    # @example
    #   pool = Heddle::DB::Pool.new("mysql://…", size: 10, timeout: 2)
    #   pool.with { |db| db.query("select 1") }
    #   pool.query_value("select name from t where id = ?", 7)
    class Pool
      NONE = [].freeze
      # Seconds to wait for a free connection where nobody says anything about time.
      CHECKOUT_TIMEOUT = 5
      # Seconds for the lock where it is wanted to put something back, though a deadline may have passed.
      LOCK_SECONDS = 5
      private_constant :NONE, :CHECKOUT_TIMEOUT, :LOCK_SECONDS

      # @return [Integer] connections, at most
      attr_reader :size

      # @param url [String] see {DB.connect}
      # @param size [Integer] connections, at most
      # @param checkout_timeout [Numeric, nil] seconds to wait for one that is free; nil: for ever. The +timeout+ of an operation
      #   unless it is given, or 5 where there is none either
      # @param idle [Numeric, nil] seconds after which one that nobody used is closed; nil: never
      # @param options see {DB.connect}
      # @raise [ArgumentError] see {DB.connect}; nothing is connected yet
      def initialize(url, size: 10, checkout_timeout: (unset = true), idle: 300, **options)
        settings = DB.settings(url, options)
        @connect = -> { DB.connect_with(*settings) }
        @size = Options.count(:size, size)
        @checkout_timeout = unset ? settings.last[:timeout] || CHECKOUT_TIMEOUT : Options.seconds(:checkout_timeout, checkout_timeout)
        @idle = Options.seconds(:idle, idle)
        @lock = Thread::Mutex.new
        @free = [] # [connection, since when], the one used last at the end
        @waiting = {}.compare_by_identity # queues as keys; whoever is first is served first
        @made = 0
        @joined = {}.compare_by_identity # tasks, fibers and threads in a transaction, with its connection
        @closed = false
        @forks = Process.pid
      end

      # Gives the block a connection that nobody else has meanwhile. In a transaction of the calling task or thread that is the
      # transaction's. What the block changes in the session (variables, the database, locks, temporary tables) is put back
      # before somebody else has the connection.
      #
      # @yieldparam connection [Connection]
      # @return the block's value
      # @raise [PoolTimeout] when none becomes free in time; [PoolClosed]; see {DB.connect}
      def with
        raise ArgumentError, "a connection is lent to a block: pool.with { |db| … }" unless block_given?

        joined = @joined[Transactions.holder] unless @joined.empty?
        return yield joined if joined && !joined.forked?

        connection = checkout
        begin
          yield connection
        ensure
          give_back(connection)
        end
      end

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
      %i[query exec query_value query_row query_maybe_row query_list].each do |name|
        define_method(name) { |sql, *arguments| with { |connection| connection.public_send(name, sql, *arguments) } }
      end

      # Without a block an Enumerator, which holds a connection from its first row to its last, or to where its reader stops.
      #
      # @see Connection#each_row
      def each_row(sql, *arguments, fetch: 1000, &block)
        return enum_for(:each_row, sql, *arguments, fetch: fetch) unless block

        with { |connection| connection.each_row(sql, *arguments, fetch: fetch, &block) }
        self
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

      # Closes what is free now, and the rest as it is given back. Who waits gets PoolClosed.
      def close
        free, waiting = @lock.synchronize do
          @closed = true
          [@free.dup, @waiting.keys].tap { [@free, @waiting].each(&:clear) }
        end
        waiting.each { |queue| queue << :closed }
        free.each { |connection, _| discard(connection) }
        nil
      end

      def closed?
        @closed
      end

      # @api private a connection of the pool begins a transaction, which all that its holder does with the pool joins
      def enter(holder, connection)
        @joined[holder] = connection
      end

      # @api private its transaction is over
      def leave(connection)
        @joined.delete_if { |_, joined| joined.equal?(connection) }
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@made} of #{@size}, #{@free.size} free, #{@waiting.size} waiting#{" closed" if @closed}>"
      end

      private

      # Not by Kernel#loop, which takes PoolClosed (a StopIteration, as ClosedQueueError is) for its end.
      def checkout
        until (connection = try_checkout)
        end
        connection
      end

      def try_checkout
        found = take
        found = wait(found) if found.is_a?(Thread::Queue)
        return make if found == :make
        return lend(found) if found.healthy?

        throw_away(found)
        nil
      end

      # A connection, :make for the right to make one, or a queue to wait at.
      def take
        stale = NONE
        @lock.synchronize do
          raise PoolClosed, "this pool of connections is closed" if @closed

          forget_parents
          stale = drop_idle
          if (connection, _ = @free.pop)
            connection
          elsif @made < @size
            @made += 1
            :make
          else
            Thread::Queue.new.tap { |queue| @waiting[queue] = true }
          end
        end
      ensure
        stale.each(&:close)
      end

      def wait(queue)
        found = Heddle.deadline(@checkout_timeout) { queue.pop }
        raise PoolClosed, "this pool of connections is closed" if found == :closed

        taken = found
      rescue DeadlineExceeded
        raise unless waited_in_vain?

        raise PoolTimeout, "none of #{@size} connections became free in #{@checkout_timeout} s: make the pool larger (size:), or hold connections for less time"
      ensure
        stop_waiting(queue) unless taken
      end

      # Whether it is our limit that is over, not one around us.
      def waited_in_vain?
        remaining = Heddle.remaining
        remaining.nil? || remaining > 0
      end

      # Whoever goes away without what was put into its queue passes that on.
      def stop_waiting(queue)
        settle { @waiting.delete(queue) }
        found = queue.empty? ? nil : queue.pop(true)
        return if found.nil? || found == :closed

        pass_on(found)
      end

      def make
        connection = @connect.call
        connection.pool = self
        lend(connection)
      ensure
        pass_on(:make) unless connection
      end

      def lend(connection)
        connection.lease = nil
        connection
      end

      def give_back(connection)
        return connection.close if connection.forked? # its place is in the parent's pool

        leave(connection) unless @joined.empty?
        connection.lease = :none
        begin
          reusable = reusable?(connection)
        ensure
          reusable ? pass_on(connection) : throw_away(connection)
        end
      end

      # Many closes that wait are sent now, unless somebody's next request can take them along.
      def reusable?(connection)
        return false if @closed || !connection.at_rest? # who gets it next asks the system, too

        connection.lease = nil
        return false unless connection.tidy

        connection.rest if @waiting.empty?
        connection.lease = :none
        true
      rescue Error, DeadlineExceeded, SystemCallError, IOError
        false
      end

      # A connection, or the right to make one, to who has waited longest.
      def pass_on(what)
        settle do
          forget_parents if what == :make # a connection is one of this process
          if (queue, _ = @waiting.shift)
            queue << what
          elsif what == :make
            @made -= 1 if @made > 0
          elsif @closed
            @made -= 1
            what.close
          else
            @free << [what, now]
          end
        end
      end

      # Under the lock, whatever has struck: a place that is not put back is lost to the pool.
      def settle(&block)
        Heddle.shield(LOCK_SECONDS) { @lock.synchronize(&block) }
      end

      # Its place is the next one's.
      def throw_away(connection)
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
        return NONE unless @idle && (oldest = @free.first) && oldest[1] < (limit = now - @idle)

        stale = @free.take_while { |_, since| since < limit }
        @free.shift(stale.size)
        @made -= stale.size
        stale.map(&:first)
      end

      # A child of fork has none of its parent's connections.
      def forget_parents
        return if @forks == Process.pid

        @forks = Process.pid
        @free.each { |connection, _| connection.close }
        @free.clear
        @joined.clear
        @waiting.clear
        @made = 0
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
