# frozen_string_literal: true

module Heddle
  # Copies of values that a queue keeps until it sends them: the caller may change its Strings meanwhile, such as the
  # buffer of IO#read. A frozen String is its own copy, and other values need none.
  #
  # @api private
  module Snapshot
    class << self
      # @return a value that nobody else changes; the same one if nobody can
      def of(value)
        case value
        when String then value.frozen? ? value : value.dup.freeze
        when Array then value.map { |element| of(element) }
        when Hash then of_hash(value)
        when Range then of_range(value)
        else
          set?(value) ? value.dup : value
        end
      end

      # @param values [Array]
      # @return [Array] the same one if nothing in it can change
      def all(values) = (values.none? { |value| changes?(value) }) ? values : values.map { |value| of(value) }

      private

      def changes?(value)
        case value
        when String then !value.frozen?
        when Array, Hash, Range then true
        else set?(value)
        end
      end

      def set?(value) = defined?(Set) && Set === value

      # Keywords stay keywords.
      def of_hash(hash)
        copy = hash.transform_values { |value| of(value) }
        Hash.ruby2_keywords_hash?(hash) ? Hash.ruby2_keywords_hash(copy) : copy
      end

      def of_range(range)
        return range unless String === range.begin || String === range.end

        Range.new(of(range.begin), of(range.end), range.exclude_end?)
      end
    end
  end
  private_constant :Snapshot
end
