# frozen_string_literal: true

require "cgi"

module Heddle
  module Lab
    module Report
      # Clustered bars as an SVG of its own: a cluster a case, a bar a series.
      class BarChart
        # @!attribute name [String]
        # @!attribute values [Array<Float, nil>] one a cluster
        # @!attribute lows [Array<Float, nil>, nil] lower ends of the whiskers
        # @!attribute highs [Array<Float, nil>, nil] upper ends
        Series = Struct.new(:name, :values, :lows, :highs, keyword_init: true)

        WIDTH = 960
        HEIGHT = 460
        LEFT = 64
        RIGHT = 16
        TOP = 84
        BOTTOM = 44
        # Okabe and Ito's colours, to be told apart by everybody.
        COLOURS = %w[#999999 #e69f00 #f0c000 #0072b2 #56b4e9 #d55e00 #cc79a7 #009e73 #555555 #8c6bb1].freeze
        private_constant :WIDTH, :HEIGHT, :LEFT, :RIGHT, :TOP, :BOTTOM, :COLOURS

        # @param title [String]
        # @param unit [String] of the values
        # @param clusters [Array<String>] labels beneath
        # @param series [Array<Series>]
        def initialize(title:, unit:, clusters:, series:)
          @title = title
          @unit = unit
          @clusters = clusters
          @series = series
          ends = series.flat_map { |one| one.values + one.highs.to_a + one.lows.to_a }.compact
          @step = step([ends.max.to_f, 0].max - [ends.min.to_f, 0].min)
          @top = (ends.max.to_f / @step).ceil * @step
          @bottom = [(ends.min.to_f / @step).floor * @step, 0].min
          @top = @step if @top <= @bottom
        end

        # @return [String]
        def to_svg
          <<~SVG
            <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{WIDTH} #{HEIGHT}" width="#{WIDTH}" height="#{HEIGHT}" font-family="sans-serif" font-size="12" fill="#222">
            <title>#{escape(@title)}</title>
            <rect width="#{WIDTH}" height="#{HEIGHT}" fill="#fff"/>
            <text x="#{LEFT}" y="26" font-size="16" font-weight="bold">#{escape(@title)}</text>
            #{[*legend, *grid, *clusters].join("\n")}
            </svg>
          SVG
        end

        private

        # A round number that cuts the range in four to ten.
        def step(range)
          return 1.0 unless range.positive?

          power = 10.0**Math.log10(range / 5).floor
          [1, 2, 5, 10].map { |factor| factor * power }.find { |size| range / size <= 8 }
        end

        def height(value) = TOP + (HEIGHT - TOP - BOTTOM) * (@top - value) / (@top - @bottom)

        def legend
          x = LEFT
          y = 46
          @series.zip(COLOURS.cycle).flat_map do |series, colour|
            width = 26 + series.name.size * 7
            x, y = LEFT, y + 18 if x + width > WIDTH - RIGHT
            entry = [%(<rect x="#{x}" y="#{y - 9}" width="10" height="10" fill="#{colour}"/>),
              %(<text x="#{x + 15}" y="#{y}">#{escape(series.name)}</text>)]
            x += width
            entry
          end
        end

        def grid
          lines = (0..((@top - @bottom) / @step).round).flat_map do |index|
            value = @bottom + index * @step
            y = round(height(value))
            [%(<line x1="#{LEFT}" y1="#{y}" x2="#{WIDTH - RIGHT}" y2="#{y}" stroke="#{value.zero? ? "#444" : "#ddd"}"/>),
              %(<text x="#{LEFT - 8}" y="#{y + 4}" text-anchor="end">#{label(value)}</text>)]
          end
          lines << %(<text x="#{LEFT}" y="#{HEIGHT - 6}" fill="#666" font-size="11">#{escape(@unit)}</text>)
        end

        def clusters
          width = (WIDTH - LEFT - RIGHT) / @clusters.size.to_f
          bar = width * 0.86 / @series.size
          @clusters.each_with_index.flat_map do |cluster, index|
            left = LEFT + index * width
            bars = @series.zip(COLOURS.cycle).each_with_index.flat_map do |(series, colour), place|
              bar(series, colour, index, left + width * 0.07 + place * bar, bar)
            end
            bars << %(<text x="#{round(left + width / 2)}" y="#{HEIGHT - BOTTOM + 18}" text-anchor="middle">#{escape(cluster)}</text>)
          end
        end

        def bar(series, colour, index, x, width)
          value = series.values[index]
          return [] unless value

          y, zero = height(value), height(0)
          middle = x + width / 2
          parts = [%(<rect x="#{round(x)}" y="#{round([y, zero].min)}" width="#{round(width * 0.92)}" height="#{round((zero - y).abs)}" ) +
            %(fill="#{colour}"><title>#{escape("#{series.name}, #{@clusters[index]}: #{label(value)}")}</title></rect>)]
          low, high = series.lows&.at(index), series.highs&.at(index)
          if low && high
            parts << %(<line x1="#{round(middle)}" y1="#{round(height(low))}" x2="#{round(middle)}" y2="#{round(height(high))}" stroke="#222"/>)
          end
          peak = round([y, zero, high ? height(high) : y].min - 4)
          parts << %(<text x="#{round(middle + 3)}" y="#{peak}" font-size="9" transform="rotate(-90 #{round(middle + 3)} #{peak})">#{label(value)}</text>)
        end

        def label(value) = (value.abs >= 10 || value.zero?) ? value.round.to_s : format("%g", value.round(2))

        def round(number) = number.to_f.round(1)

        def escape(text) = CGI.escapeHTML(text)
      end
    end
  end
end
