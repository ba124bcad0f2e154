# frozen_string_literal: true

module Heddle
  module DB
    # A statement that stays prepared until it is closed or garbage-collected; see {Connection#prepare}.
    class Statement
      # @return [String]
      attr_reader :sql

      # @api private
      def initialize(connection, sql, handle)
        @connection = connection
        @sql = sql
        @handle = handle
        @expired = false
        @plain = connection.plain?(sql)
      end

      # @param arguments the values of its parameters
      # @return [Result]
      # @raise [StatementClosed, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def query(*arguments)
        @connection.run_statement(self, @plain && @handle, arguments)
      end

      # Runs the statement for its effect.
      #
      # @return [Integer] how many rows the statement changed
      # @raise [StatementClosed, ServerError, ConnectionLost, ProtocolError, DeadlineExceeded] see {Connection#query}
      def exec(*arguments)
        query(*arguments).affected_rows
      end

      # @return [Integer] the number of parameters
      def parameters
        handle.parameters
      end

      # @return [Array<Symbol>] the server's types of the parameters, see {Column#type}; :null or :text where the server
      #   uses the types of the bound values instead
      def parameter_types
        handle.parameter_types.to_a.map(&:type)
      end

      # @return [Array<Column>] the columns of its result; empty without rows
      def columns
        handle.columns.to_a
      end

      # Closes the statement: the close is sent with the connection's next request. Closing twice is harmless.
      def close
        handle, @handle = @handle, nil
        @connection.release_statement(handle) if handle
        nil
      end

      # @return [Boolean]
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

      # @return [Boolean, nil] whether the text is of the kind :plain, see {Driver#kind}; nil until the driver was
      #   asked. Any other statement may change the session each time it runs
      # @api private
      attr_accessor :plain

      # @api private
      def renew(handle)
        @handle = handle
        @expired = false
      end

      # Has the connection prepare the statement again before its next run.
      #
      # @api private
      def expire
        @expired = true
        @plain = nil # has the connection look at each run
      end

      # @api private
      def expired? = @expired

      # @return [String]
      def inspect
        "#<#{self.class} #{sql}#{" closed" if closed?}>"
      end
    end
  end
end
