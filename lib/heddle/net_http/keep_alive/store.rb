# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # The connections that wait for their next session: for all threads and tasks of the process.
      #
      # A connection belongs to whoever has taken or deleted it in {KeyedTable}, or has got it as surplus. That needs no
      # lock. Sessions take and give it in C (ext/heddle/net_http/session.c). The lock is for the thread that
      # closes connections; within it nothing waits or runs a program's code.
      class Store
        # Seconds between two looks at all connections, at least.
        PAUSE = 0.1
        private_constant :PAUSE

        # @param per_host [Integer] the most connections to one host and port
        # @param total [Integer] the most connections
        def initialize(per_host:, total:)
          @per_host = per_host
          @total = total
          @lock = Mutex.new
          @waking = ConditionVariable.new
          @idle = KeyedTable.new
        end

        # @return [Integer] connections
        def size = @idle.size

        # @return [Hash{String => Integer}] how many connections there are to each host and port
        def by_host = @idle.to_a.map { |connection| "#{connection.key.host}:#{connection.key.port}" }.tally

        # Closes all.
        def clear
          gone = @idle.clear
          KeepAlive.evicted(gone.size)
          gone.each(&:close)
          @lock.synchronize do
            @sweeps_at = 0.0 # the sweeper ends, even if it does not wait yet
            @waking.signal
          end
        rescue ThreadError
          nil # a signal's handler may not lock: the sweeper ends later
        end

        # Tells the C code to use this store.
        #
        # @param closed [IO] a closed one
        # @param chosen [Boolean] whether a program's block adds to each key
        def use(closed, chosen) = KeepAlive.keep(self, @idle, [@per_host, @total], closed, chosen)

        # @return [Store] an empty one with the same limits
        def successor = Store.new(per_host: @per_host, total: @total)

        # In a child of fork.
        def discard = @idle.to_a.each(&:discard)

        # A thread closes connections that were idle for too long, so that a program without requests keeps none open.
        # The thread ends when it wakes up and finds no connection. It does not end as soon as the last one is taken:
        # most callers give the connection back at once. A connection that comes while it looks at them is not
        # overlooked: @sweeps_at is nil then, so that whoever gives it waits for the lock. If an interrupt ends that
        # wait, or if the thread cannot be told (a signal's handler may not lock) or made, the connection is closed.
        #
        # @param connection [Connection] that has come
        def watch(connection)
          time, at = connection.expires_at, @sweeps_at
          watched = at && at <= time && @sweeper&.alive?
          @lock.synchronize { sweep_by(time) } unless watched # a `return` from such a body costs an object
          watched = true
        rescue ThreadError
          nil
        ensure
          remove([connection]).each(&:close) unless watched
        end

        private

        def sweep_by(time)
          if @sweeps_at && @sweeper&.alive?
            @waking.signal if time < @sweeps_at
            @sweeps_at = [time, @sweeps_at].min
          else
            @sweeps_at = time
            @sweeper = Thread.new { Heddle.background_thread { sweep } }
            @sweeper.name = "heddle keep-alive"
            @sweeper.thread_variable_set(:heddle_wakes_nobody, true) # a deadlock beside it is one
          end
        end

        # Each round looks at all connections, so there are at least some milliseconds between two rounds.
        def sweep
          loop do
            gone = @lock.synchronize do
              @waking.wait(@lock, [@sweeps_at - Clock.now, PAUSE].max)
              evict_expired(Clock.now)
            end
            gone.each(&:close)
            return unless @sweeper.equal?(Thread.current)
          end
        end

        # @return [Array<Connection>]
        def evict_expired(now)
          @sweeps_at = nil # see watch
          expired, rest = @idle.to_a.partition { |connection| connection.expires_at <= now }
          gone = remove(expired)
          rest.empty? ? @sweeper = nil : @sweeps_at = rest.map(&:expires_at).min
          gone
        end

        # @return [Array<Connection>] those that nobody has just taken
        def remove(connections)
          connections.select { |connection| @idle.delete(connection) }.tap { |gone| KeepAlive.evicted(gone.size) }
        end
      end
      private_constant :Store
    end
  end
end
