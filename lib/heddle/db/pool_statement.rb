# frozen_string_literal: true

module Heddle
  module DB
    # A statement of a pool; see {Pool#prepare}.
    class PoolStatement
      # @api private
      # @param sql [String, VirtualStatement]
      # @raise [TypeError]
      def self.of(pool, sql)
        return new(pool, sql) if sql.is_a?(VirtualStatement)
        raise TypeError, "SQL must be a String, not #{sql.inspect}" unless sql.is_a?(String)

        text = -sql
        new(pool, VirtualStatement.new({}, ->(_) { text }))
      end

      # @api private
      def initialize(pool, statement)
        @pool = pool
        @statement = statement
      end

      # Runs the statement on a connection of the pool.
      #
      # @param arguments the values of its parameters
      # @return [Result]
      # @raise [PoolTimeout, PoolClosed] see {Pool#with}; [ServerError, ConnectionLost, ProtocolError, DeadlineExceeded]
      #   see {Connection#query}
      def query(*arguments)
        @pool.query(@statement, *arguments)
      end

      # Runs the statement for its effect.
      #
      # @return [Integer] how many rows the statement changed
      # @raise [PoolTimeout, PoolClosed, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {#query}
      def exec(*arguments)
        query(*arguments).affected_rows
      end
      ruby2_keywords :query, :exec

      # @return [String]
      def inspect
        "#<#{self.class} #{@statement.inspect}>"
      end
    end
  end
end
