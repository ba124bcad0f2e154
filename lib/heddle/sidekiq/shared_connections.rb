# frozen_string_literal: true

require "connection_pool"
require "timeout"

module Heddle
  module SidekiqSupport
    # Extends the ConnectionPool of a capsule whose fibers outnumber its connections.
    #
    # ConnectionPool wakes all waiters whenever a connection comes back: with some hundred waiters nearly all of the CPU
    # time would go there. Here they wait in a line, and a turn that comes back goes to the first of it: whoever gave it
    # back, and wants another one at once, stands behind the others.
    #
    # @api private
    module SharedConnections
      # Seconds until a fiber that gets no connection fails. ConnectionPool's usual second is meant for pools that have
      # a connection for each thread; here a slow Redis makes a queue.
      PATIENCE = 60

      # @return [Integer] how many may use the pool at once. Sidekiq refuses to start with a pool that is smaller than
      #   the capsule's concurrency.
      attr_reader :size

      # @return [Integer]
      attr_reader :connections

      # @param count [Integer] how many may use the pool at once
      # @return [self]
      def share_among(count)
        @turns = Thread::Mutex.new
        @line = [] # of those who wait, a Queue each
        @free = @connections = @size
        @size = [@size, count].max
        self
      end

      # @yieldparam connection [Object]
      # @raise [ConnectionPool::TimeoutError]
      def with(**options, &block)
        return super if Thread.current[@key] # has a connection already, which ConnectionPool gives again

        take_turn(options[:timeout] || [@timeout, PATIENCE].max)
        begin
          super
        ensure
          pass_turn
        end
      end

      alias_method :then, :with

      private

      def take_turn(seconds)
        return unless (place = stand_in_line)

        message = "waited #{seconds} s for one of the #{@connections} connections to Redis"
        Timeout.timeout(seconds, ::ConnectionPool::TimeoutError, message) { place.pop }
        mine = true
      ensure
        leave_line(place) unless place.nil? || mine
      end

      # @return [Thread::Queue, nil] nil with a turn
      def stand_in_line
        @turns.synchronize do
          next (@free -= 1) && nil if @free > 0

          Thread::Queue.new.tap { |place| @line << place }
        end
      end

      # It may have got a turn as it was interrupted.
      def leave_line(place)
        pass_turn unless @turns.synchronize { @line.delete(place) }
      end

      def pass_turn
        @turns.synchronize { (place = @line.shift) ? place << true : @free += 1 }
      end
    end
  end
end
