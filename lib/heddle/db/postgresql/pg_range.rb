# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # A range of PostgreSQL's that a Range of Ruby's cannot be: an empty one, one without its first value, or one with
      # bounds that Ruby does not compare, such as an infinite time. It can be bound to a parameter.
      class PGRange
        # @return the bound; nil for none
        attr_reader :begin, :end

        # @param first [Object, nil]
        # @param last [Object, nil]
        # @param exclude_begin [Boolean]
        # @param exclude_end [Boolean]
        # @param empty [Boolean] the range has no values
        def initialize(first, last, exclude_begin: false, exclude_end: false, empty: false)
          @begin = first
          @end = last
          @exclude_begin = exclude_begin
          @exclude_end = exclude_end
          @empty = empty
          freeze
        end

        # @return [Boolean] whether the range is without its first bound
        def exclude_begin? = @exclude_begin

        # @return [Boolean] whether the range is without its last bound
        def exclude_end? = @exclude_end

        # @return [Boolean] whether the range has no values
        def empty? = @empty

        # Whether the other has the same bounds.
        #
        # @param other [Object]
        # @return [Boolean]
        def ==(other) = other.is_a?(PGRange) && parts == other.parts
        alias_method :eql?, :==

        # @return [Integer]
        def hash = parts.hash

        # @return [String]
        def inspect
          return "#<#{self.class} empty>" if empty?

          "#<#{self.class} #{exclude_begin? ? "(" : "["}#{self.begin.inspect}, #{self.end.inspect}" \
            "#{exclude_end? ? ")" : "]"}>"
        end

        protected

        def parts = [empty?, self.begin, self.end, exclude_begin?, exclude_end?]
      end
    end
  end
end
