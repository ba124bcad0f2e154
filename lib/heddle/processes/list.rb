# frozen_string_literal: true

module Heddle
  class Processes
    # Items that the workers, which are forks, have already: only their numbers need to be sent.
    module List
      # The Integers of a Range, which may be endless.
      Integers = Struct.new(:begin, :size) do
        # @return [Array<Integer>]
        def [](first, count) = Array.new(count) { |at| self.begin + first + at }
      end
      private_constant :Integers

      # @return [Array, Integers, nil] all that `each` yields now; nil if it has to be called for that, as one of a
      #   subclass has
      def self.of(items)
        case items
        when Array then [*items] if each_of?(Array, items)
        when Range then integers(items) if items.begin.is_a?(Integer) && each_of?(Range, items)
        end
      end

      # Where the end is an object of another class, Ruby cannot tell the size.
      def self.integers(range) = (size = range.size) && Integers.new(range.begin, size)
      private_class_method :integers

      def self.each_of?(owner, items) = items.method(:each).owner.equal?(owner)
      private_class_method :each_of?
    end
  end
end
