# frozen_string_literal: true

module Heddle
  module DB
    # Prepared statements by their SQL; the one that was used longest ago goes first.
    #
    # @api private
    class StatementCache
      MODES = %i[transaction always never].freeze

      # @param mode [Symbol] one of MODES
      # @param size [Integer]
      # @param release [Proc] is called with each statement that goes
      def initialize(mode, size, &release)
        raise ArgumentError, "statement_cache: is one of #{MODES.map(&:inspect).join(", ")}, not #{mode.inspect}" unless MODES.include?(mode)
        raise ArgumentError, "statement_cache_size: is a number above 0, not #{size.inspect}" unless size.is_a?(Integer) && size > 0

        @mode = mode
        @size = size
        @release = release
        @statements = {}
      end

      # @return [Integer]
      def size = @statements.size

      # Whether a statement is to be kept now.
      def applies?(in_transaction)
        @mode == :always || (in_transaction && @mode == :transaction)
      end

      # @return the statement, now the one used last; nil
      def [](sql)
        statement = @statements.delete(sql)
        @statements[sql] = statement if statement
      end

      def []=(sql, statement)
        @release.call(@statements.shift.last) while @statements.size >= @size
        @statements[sql.frozen? ? sql : sql.dup.freeze] = statement
      end

      def delete(sql)
        statement = @statements.delete(sql)
        @release.call(statement) if statement
      end

      def clear
        @statements.each_value(&@release) unless @statements.empty?
        @statements.clear
      end
    end
  end
end
