# frozen_string_literal: true

module Heddle
  module DB
    # A statement with the values of its parameters; see {DB.bind}.
    class BoundStatement
      # @api private
      def initialize(sql, arguments)
        unless sql.is_a?(String) || sql.is_a?(VirtualStatement)
          raise TypeError, "SQL must be a String, not #{sql.inspect}"
        end

        @sql = Snapshot.of(sql)
        @arguments = Snapshot.all(arguments).freeze
      end

      # @return [String, VirtualStatement]
      attr_reader :sql

      # @api private
      attr_reader :arguments

      # @return [String] without the values
      def inspect = "#<#{self.class} #{sql}>"
      alias_method :to_s, :inspect
    end
  end
end
