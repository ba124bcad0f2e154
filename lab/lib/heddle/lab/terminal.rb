# frozen_string_literal: true

require "io/console"

module Heddle
  module Lab
    # How much room an output has.
    module Terminal
      # As VT100 had it, for a terminal that does not know its size: a container's, often.
      USUAL = [24, 80].freeze
      private_constant :USUAL

      module_function

      # @param output [IO]
      # @return [Array(Integer, Integer)] rows and columns of a terminal
      def size(output) = output.winsize.zip(USUAL).map { |known, usual| known.positive? ? known : usual }

      # @param output [IO]
      # @return [Integer, nil] columns; nil for what is no terminal
      def width(output) = (size(output).last if output.tty?)
    end
  end
end
