# frozen_string_literal: true

module Heddle
  module Lab
    # One line on a terminal that shows the progress of a run. Writes nothing if the output is not a terminal.
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

      # Erases the line.
      def clear = @output&.print("\r\e[K")
    end
  end
end
