# frozen_string_literal: true

module Heddle
  module DB
    # A statement that stays prepared until it is closed, or nobody holds it any more; see {Connection#prepare}.
    class Statement
      # @return [String]
      attr_reader :sql

      # @api private
      def initialize(connection, sql, handle)
        @connection = connection
        @sql = sql
        @handle = handle
      end

      # @param arguments what its parameters stand for
      # @return [Result]
      # @raise [StatementClosed, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def query(*arguments)
        @connection.run_statement(self, arguments)
      end

      # Runs it for what it changes.
      #
      # @return [Integer] how many rows it changed
      # @raise [StatementClosed, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def exec(*arguments)
        query(*arguments).affected_rows
      end

      # @return [Integer] how many parameters it has
      def parameters
        handle.parameters
      end

      # @return [Array<Symbol>] what the server takes its parameters for, as {Column#type}. Of MySQL and MariaDB that is seldom
      #   more than :null or :text: they go by what is bound
      def parameter_types
        handle.parameter_types.to_a.map(&:type)
      end

      # @return [Array<Column>] what its result has; empty when it has none
      def columns
        handle.columns.to_a
      end

      # Its close rides with the connection's next request. Closing twice is harmless.
      def close
        @handle = nil.tap { @connection.release_statement(@handle) } if @handle
        nil
      end

      def closed?
        @handle.nil?
      end

      # @api private
      def handle
        @handle || raise(StatementClosed, "this statement is closed: #{sql}")
      end

      # @api private
      def of?(connection)
        @connection.equal?(connection)
      end

      # @api private
      def renew(handle)
        @handle = handle
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{sql}#{" closed" if closed?}>"
      end
    end
  end
end
