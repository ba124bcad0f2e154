# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # The connections that wait for their next session: for all threads and tasks of the process.
      #
      # Nothing inside the lock waits or runs a program's code. A Thread#raise may strike anywhere: a connection is
      # taken out of the list of its host first, so that whichever step is the last, no two sessions get it.
      class Store
        # Seconds between two looks at all connections, at least.
        PAUSE = 0.1
        private_constant :PAUSE

        # @return [Integer] connections closed because of a limit, or because they were idle for too long
        attr_reader :evicted

        # @param per_host [Integer] the most connections to one host and port
        # @param total [Integer] the most connections
        def initialize(per_host:, total:)
          @per_host = per_host
          @total = total
          @lock = Mutex.new
          @waking = ConditionVariable.new
          @places = Places.new
          @evicted = 0
        end

        # @return [Integer] connections
        def size = @places.size

        # Takes a connection out: the one that rested last.
        #
        # @param key [Key]
        # @return [Connection, nil]
        def take(key)
          @lock.synchronize { @places.take(key) }
        rescue ThreadError # a signal's handler may not lock
          nil
        end

        # @param connection [Connection] that rests
        # @return [Boolean] whether it was taken in
        def give(connection)
          surplus = @lock.synchronize do
            list = @places.add(connection)
            sweep_by(connection.expires_at)
            drop_surplus(list)
          end
          surplus&.close
          true
        rescue ThreadError
          false
        end

        # Closes all.
        def clear
          gone = @lock.synchronize do
            @sweeps_at = 0.0 # the sweeper ends, even if it does not wait yet
            @waking.signal
            @places.to_a.tap { |all| @evicted += all.size } # counted before they leave
          ensure
            @places.clear
          end
          gone.each(&:close)
        end

        # @return [Store] an empty one with the same limits
        def successor = Store.new(per_host: @per_host, total: @total)

        # In a child of fork.
        def abandon = @places.each(&:abandon)

        private

        # At most one is too many.
        def drop_surplus(list)
          surplus = list.first if list.size > @per_host
          surplus ||= @places.first if @places.size > @total
          surplus&.tap { |connection| evict(connection) }
        end

        def evict(connection)
          @places.delete(connection)
          @evicted += 1
        end

        # A thread closes connections that were idle for too long, so that a program without requests keeps none open.
        # The thread ends when it wakes up and finds no connection. It does not end as soon as the last one is taken:
        # most callers give the connection back at once.
        def sweep_by(time)
          if @sweeper&.alive?
            @waking.signal if time < @sweeps_at
            @sweeps_at = [time, @sweeps_at].min
          else
            @sweeps_at = time
            @sweeper = Thread.new { sweep }
            @sweeper.name = "heddle keep-alive"
            @sweeper.thread_variable_set(:heddle_wakes_nobody, true) # a deadlock beside it is one
          end
        rescue ThreadError
          nil # no thread can be made now: limits still hold
        end

        # Each round looks at all connections, so there are at least some milliseconds between two rounds.
        def sweep
          loop do
            gone = @lock.synchronize do
              @waking.wait(@lock, [@sweeps_at - Clock.now, PAUSE].max)
              now = Clock.now
              expired = @places.to_a.select { |connection| connection.expires_at <= now }
              expired.each { |connection| evict(connection) }
              @sweeps_at = @places.to_a.map(&:expires_at).min
              @sweeper = nil unless @sweeps_at
              expired
            end
            gone.each(&:close)
            return unless @sweeper.equal?(Thread.current)
          end
        end
      end
      private_constant :Store
    end
  end
end
