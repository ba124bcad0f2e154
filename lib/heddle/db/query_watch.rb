# frozen_string_literal: true

module Heddle
  module DB
    # Measures one statement, and tells the listeners of its end.
    #
    # @api private
    class QueryWatch
      # @return [QueryWatch, nil] nil without listeners
      def self.for(sql, *owners)
        return unless QueryListeners.anyone

        listeners = QueryListeners.of(*owners)
        new(sql, listeners) unless listeners.empty?
      end

      def initialize(sql, listeners)
        @sql = sql
        @listeners = listeners
        @seconds = 0.0
        @rows = nil
        @cached = false
      end

      # @return [Integer, nil] how many rows there were until now
      attr_accessor :rows

      # @return [Float]
      attr_writer :seconds

      # @return [Boolean]
      attr_writer :cached

      # Adds the block's time. Its error ends the watch.
      def measure
        started = Clock.now
        begin
          yield
        rescue Exception => error # standard:disable Lint/RescueException
          raise
        ensure
          @seconds += Clock.now - started
          done(error) if error
        end
      end

      # Tells the listeners, once.
      #
      # @param outcome [Result, Exception, nil] what has a number of rows, or an error
      def done(outcome)
        return if @told

        @told = true
        case outcome
        when Exception then error = outcome
        when Result then @rows = outcome.rows? ? outcome.size : outcome.affected_rows
        end
        QueryListeners.tell(@listeners, QueryEvent.new(sql: @sql, seconds: @seconds, rows: (@rows unless error),
          cached: @cached, error: error))
      end
    end
    private_constant :QueryWatch
  end
end
