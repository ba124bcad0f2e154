# frozen_string_literal: true

require_relative "query_event"
require_relative "query_listener"

module Heddle
  module DB
    # Listeners that {Connection}, {Pool} and {DB} call after each statement.
    module QueryListeners
      LOCK = Thread::Mutex.new
      # Set for a fiber while it runs listeners, whose own queries are not reported.
      TELLING = :heddle_telling_of_queries
      private_constant :LOCK, :TELLING

      class << self
        # @api private
        # @return [Boolean] whether this process ever had a listener: all that a query without listeners checks
        def anyone = Connection.watched?

        # @api private
        def add(owner, handler)
          raise ArgumentError, "on_query needs a block: db.on_query { |event| … }" unless handler

          listener = QueryListener.new(owner, handler)
          LOCK.synchronize do
            owner.query_listeners = [*owner.query_listeners, listener].freeze
            Connection.watch
          end
          listener
        end

        # @api private
        def remove(owner, listener)
          LOCK.synchronize do
            left = owner.query_listeners.to_a - [listener]
            owner.query_listeners = left.empty? ? nil : left.freeze
          end
        end

        # @api private
        # @param owners [Array<QueryListeners, nil>]
        # @return [Array<QueryListener>] those to call after a query that begins now
        def of(*owners)
          return [] if Thread.current[TELLING]

          owners.flat_map { |owner| owner&.query_listeners.to_a }
        end

        # @api private
        def tell(listeners, event)
          Thread.current[TELLING] = true
          listeners.each { |listener| listener.call(event) }
        ensure
          Thread.current[TELLING] = nil
        end
      end

      # Calls the block after each statement with its text, time and number of rows: for logs and measures. The block
      # runs in the task or thread of the statement, before the caller gets the result. It may use this connection; its
      # own queries are not reported. Its errors are printed and change nothing for the query.
      #
      # For all connections of a pool there is {Pool#on_query}, for all of the process {DB.on_query}.
      #
      # @yieldparam event [QueryEvent]
      # @return [QueryListener] its #close ends this
      # @example
      #   db.on_query { |event| warn "#{event.sql} #{event.seconds}" if event.seconds > 0.1 }
      def on_query(&handler)
        QueryListeners.add(self, handler)
      end

      # @api private
      attr_accessor :query_listeners
    end
    private_constant :QueryListeners
  end
end
