# frozen_string_literal: true

module Heddle
  module DB
    # Several values for one parameter in parentheses; see {DB.list}.
    class List
      # @api private
      def initialize(values)
        unless values.respond_to?(:to_ary)
          raise TypeError, "the values of a list must be an Array, not an object of the class #{values.class}"
        end

        @values = values.to_ary.map { |value| Snapshot.of(value) }.freeze
        return unless @values.empty?

        raise ArgumentError, "a list needs a value, because SQL has no empty list: without values, skip the statement"
      end

      # @return [Array]
      attr_reader :values

      # @return [String] without the values
      def inspect = "#<#{self.class} #{values.size} values>"
    end
  end
end
