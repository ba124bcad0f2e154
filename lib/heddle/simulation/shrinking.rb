# frozen_string_literal: true

module Heddle
  class Simulation
    # Looks for the fewest of some things with which something still fails (Zeller, Hildebrandt: Simplifying and
    # isolating failure-inducing input, 2002).
    class Shrinking
      TRIES = 500
      private_constant :TRIES

      # @yieldparam things [Array] some of them
      # @yieldreturn [Boolean] whether it still fails
      def initialize(&fails)
        @fails = fails
        @tries = 0
      end

      # @return [Array]
      def of(things)
        return [] if fails?([])

        parts = 2
        while things.size > 1
          size = (things.size / parts.to_f).ceil
          if (fewer = with_a_part_less(things, size))
            things = fewer
            parts = [parts - 1, 2].max
          elsif size == 1
            break
          else
            parts = [parts * 2, things.size].min
          end
        end
        things
      end

      private

      def with_a_part_less(things, size)
        things.each_slice(size) do |part|
          rest = things - part
          return rest if fails?(rest)
        end
        nil
      end

      def fails?(things) = (@tries += 1) <= TRIES && @fails.call(things)
    end
    private_constant :Shrinking
  end
end
