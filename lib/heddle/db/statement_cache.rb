# frozen_string_literal: true

module Heddle
  module DB
    # Prepared statements by their SQL; drops the least recently used statement first.
    #
    # @api private
    class StatementCache
      MODES = %i[transaction always virtual never].freeze

      # @param driver [Driver] releases each dropped statement
      # @param mode [Symbol] one of MODES
      # @param size [Integer]
      def initialize(driver, mode, size)
        unless MODES.include?(mode)
          raise ArgumentError, "statement_cache: must be one of #{MODES.map(&:inspect).join(", ")}, not #{mode.inspect}"
        end
        unless size.is_a?(Integer) && size > 0
          raise ArgumentError, "statement_cache_size: must be a number above 0, not #{size.inspect}"
        end

        @driver = driver
        @size = size
        @statements = {}
        @newest = nil
      end

      # @return [Integer]
      def size = @statements.size

      def []=(sql, statement)
        @driver.release(@statements.shift.last) while @statements.size >= @size
        @newest = sql.frozen? ? sql : sql.dup.freeze
        @statements[@newest] = statement
      end

      def delete(sql)
        @newest = nil
        statement = @statements.delete(sql)
        @driver.release(statement) if statement
      end

      # Forgets the statements if the server has closed them.
      def clear_closed
        clear unless @statements.each_value.all? { |statement| @driver.owns?(statement) }
      end

      # Takes them out first: an exception may arrive behind each release, and a closed statement must not be found.
      def clear
        statements, @statements, @newest = @statements, {}, nil
        statements.each_value { |statement| @driver.release(statement) }
      end
    end
  end
end
