# frozen_string_literal: true

require "connection_pool"
require "timeout"

module Heddle
  module SidekiqSupport
    # Extends the ConnectionPool of a capsule whose fibers outnumber its connections.
    #
    # ConnectionPool wakes all waiters whenever a connection comes back: with some hundred waiters nearly all of the CPU
    # time would go there. Here they wait in a queue, which wakes one at a time, the longest first.
    #
    # @api private
    module SharedConnections
      # Seconds until a fiber that gets no connection fails. ConnectionPool's usual second is meant for pools that have
      # a connection for each thread; here a slow Redis makes a queue.
      PATIENCE = 60

      # @return [Integer] how many may use the pool at once. Sidekiq refuses to start with a pool that is smaller than
      #   the capsule's concurrency.
      attr_reader :size

      # @param count [Integer] how many may use the pool at once
      # @return [self]
      def share_among(count)
        @turns = Thread::Queue.new
        @size.times { @turns << true }
        @connections = @size
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
          @turns << true
        end
      end

      alias_method :then, :with

      private

      def take_turn(seconds)
        return @turns.pop unless @turns.empty?

        message = "waited #{seconds} s for one of the #{@connections} connections to Redis"
        Timeout.timeout(seconds, ::ConnectionPool::TimeoutError, message) { @turns.pop }
      end
    end
  end
end
