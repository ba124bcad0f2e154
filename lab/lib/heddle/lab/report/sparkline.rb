# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # A line of figures as characters of different heights, as Tufte's sparklines.
      module Sparkline
        HEIGHTS = "▁▂▃▄▅▆▇█"
        STEP = "│"
        # A quarter more than the least figure is the whole height at least, so that noise stays flat.
        RANGE = 1.25
        private_constant :HEIGHTS, :STEP, :RANGE

        module_function

        # @param figures [Array<Float, nil>]
        # @param steps [Array<Integer>] places of figures in front of which a bar stands
        # @param width [Integer] characters; if there is less room, the newest figures are shown
        # @return [String]
        def draw(figures, steps, width)
          heights = heights(figures)
          figures.each_index.map { |place| "#{STEP if steps.include?(place)}#{heights[place]}" }.join.chars.last(width)
            .join
        end

        def heights(figures)
          least, most = figures.compact.minmax
          range = [most - least, least.abs * (RANGE - 1)].max
          figures.map do |figure|
            next " " unless figure

            share = range.zero? ? 0 : (figure - least).fdiv(range)
            HEIGHTS[(share * (HEIGHTS.size - 1)).round]
          end
        end
        private_class_method :heights
      end
    end
  end
end
