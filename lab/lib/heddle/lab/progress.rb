# frozen_string_literal: true

module Heddle
  module Lab
    # One line on a terminal that says how far a run is. Silent where the output is none.
    class Progress
      # @param output [IO]
      # @param total [Integer] cells
      def initialize(output, total)
        @output = output if output.tty?
        @total = total
        @done = 0
      end

      # @param what [String] the cell that begins
      def step(what)
        @done += 1
        @output&.print("\r\e[K#{@done}/#{@total} #{what}")
      end

      # Takes the line away.
      def clear = @output&.print("\r\e[K")
    end
  end
end
