# frozen_string_literal: true

module Heddle
  module DB
    # Several values for one parameter in parentheses; see {DB.list}.
    class List
      # @api private
      def initialize(values)
        raise TypeError, "the values of a list are an Array, not #{values.class}" unless values.respond_to?(:to_ary)

        @values = values.to_ary.dup.freeze
        return unless @values.empty?

        raise ArgumentError, "a list needs a value, for SQL has no empty list: without values, do without the statement"
      end

      # @return [Array]
      attr_reader :values

      # @return [String] without the values
      def inspect = "#<#{self.class} #{values.size} values>"
    end
  end
end
