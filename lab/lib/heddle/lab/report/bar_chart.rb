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

        WIDTH = 960 # at least: each bar has LEAST
        LEAST = 11
        HEIGHT = 460
        LEFT = 64
        RIGHT = 16
        TOP = 84
        BOTTOM = 44
        # Okabe and Ito's colours, which colour-blind readers can tell apart.
        COLOURS = %w[#999999 #e69f00 #f0c000 #0072b2 #56b4e9 #d55e00 #cc79a7 #009e73 #555555 #8c6bb1
          #7f3b08 #b2df8a #fb9a99 #1b2a6b #a6761d #66c2a5 #e7298a #bdbdbd].freeze
        private_constant :WIDTH, :LEAST, :HEIGHT, :LEFT, :RIGHT, :TOP, :BOTTOM, :COLOURS

        # @param charts [Hash{String => BarChart}] by what they show
        # @param directory [String]
        # @param name [String] the beginning of the files' names
        # @return [Hash{String => String}] the names of the files, by what they show
        # @raise [SystemCallError]
        def self.write(charts, directory, name)
          charts.to_h do |suffix, chart|
            File.write(File.join(directory, "#{name}-#{suffix}.svg"), chart.to_svg)
            [suffix, "#{name}-#{suffix}.svg"]
          end
        end

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
          @width = [WIDTH, LEFT + RIGHT + clusters.size * series.size * LEAST].max
          @leaning = clusters.map(&:size).max.to_i * 7 > (@width - LEFT - RIGHT) / clusters.size
          @above, @below = TOP + [legend_lines - 2, 0].max * 18,
            @leaning ? BOTTOM + clusters.map(&:size).max * 4 : BOTTOM
          @height = HEIGHT + (@above - TOP) + (@below - BOTTOM)
        end

        # @return [String]
        def to_svg
          width = @width + overhang
          <<~SVG
            <svg xmlns="http://www.w3.org/2000/svg" viewBox="#{-overhang} 0 #{width} #{@height}" width="#{width}" \
            height="#{@height}" font-family="sans-serif" font-size="12" fill="#222">
            <title>#{escape(@title)}</title>
            <rect x="#{-overhang}" width="#{width}" height="#{@height}" fill="#fff"/>
            <text x="#{LEFT}" y="26" font-size="16" font-weight="bold">#{escape(@title)}</text>
            #{[*legend, *grid, *clusters].join("\n")}
            </svg>
          SVG
        end

        private

        # A round number that divides the range into four to ten parts.
        def step(range)
          return 1.0 unless range.positive?

          power = 10.0**Math.log10(range / 5).floor
          [1, 2, 5, 10].map { |factor| factor * power }.find { |size| range / size <= 8 }
        end

        def height(value) = @above + (HEIGHT - TOP - BOTTOM) * (@top - value) / (@top - @bottom)

        def legend
          places.zip(@series, COLOURS.cycle).flat_map do |(x, y), series, colour|
            [%(<rect x="#{x}" y="#{y - 9}" width="10" height="10" fill="#{colour}"/>),
              %(<text x="#{x + 15}" y="#{y}">#{escape(series.name)}</text>)]
          end
        end

        # The position of each entry of the legend.
        def places
          x, y = LEFT, 46
          @series.map do |series|
            width = 26 + series.name.size * 7
            x, y = LEFT, y + 18 if x + width > @width - RIGHT
            place = [x, y]
            x += width
            place
          end
        end

        def legend_lines = places.map(&:last).uniq.size

        def grid
          lines = (0..((@top - @bottom) / @step).round).flat_map do |index|
            value = @bottom + index * @step
            y = round(height(value))
            stroke = value.zero? ? "#444" : "#ddd"
            [%(<line x1="#{LEFT}" y1="#{y}" x2="#{@width - RIGHT}" y2="#{y}" stroke="#{stroke}"/>),
              %(<text x="#{LEFT - 8}" y="#{y + 4}" text-anchor="end">#{label(value)}</text>)]
          end
          lines << %(<text x="#{LEFT}" y="#{@height - 6}" fill="#666" font-size="11">#{escape(@unit)}</text>)
        end

        def clusters
          width = (@width - LEFT - RIGHT) / @clusters.size.to_f
          bar = width * 0.86 / @series.size
          @clusters.each_with_index.flat_map do |cluster, index|
            left = LEFT + index * width
            bars = @series.zip(COLOURS.cycle).each_with_index.flat_map do |(series, colour), place|
              bar(series, colour, index, left + width * 0.07 + place * bar, bar)
            end
            bars << label_of(cluster, round(left + width / 2))
          end
        end

        # How far leaning labels reach beyond the left edge.
        def overhang
          return 0 unless @leaning

          width = (@width - LEFT - RIGHT) / @clusters.size.to_f
          @clusters.each_with_index.map { |cluster, index| cluster.size * 6 - LEFT - (index + 0.5) * width }
            .push(0).max.ceil
        end

        def label_of(cluster, middle)
          y = @height - @below + 18
          return %(<text x="#{middle}" y="#{y}" text-anchor="middle">#{escape(cluster)}</text>) unless @leaning

          x, y = middle + 4, y - 4
          %(<text x="#{x}" y="#{y}" text-anchor="end" transform="rotate(-35 #{x} #{y})">#{escape(cluster)}</text>)
        end

        def bar(series, colour, index, x, width)
          value = series.values[index]
          return [] unless value

          y, zero = height(value), height(0)
          middle = x + width / 2
          parts = [%(<rect x="#{round(x)}" y="#{round([y, zero].min)}" width="#{round(width * 0.92)}" ) +
            %(height="#{round((zero - y).abs)}" fill="#{colour}">) +
            %(<title>#{escape("#{series.name}, #{@clusters[index]}: #{label(value)}")}</title></rect>)]
          low, high = series.lows&.at(index), series.highs&.at(index)
          if low && high
            x = round(middle)
            parts << %(<line x1="#{x}" y1="#{round(height(low))}" x2="#{x}" y2="#{round(height(high))}" stroke="#222"/>)
          end
          peak = round([y, zero, high ? height(high) : y].min - 4)
          x = round(middle + 3)
          turned = %(transform="rotate(-90 #{x} #{peak})")
          parts << %(<text x="#{x}" y="#{peak}" font-size="9" #{turned}>#{label(value)}</text>)
        end

        def label(value) = (value.abs >= 10 || value.zero?) ? value.round.to_s : format("%g", value.round(2))

        def round(number) = number.to_f.round(1)

        def escape(text) = CGI.escapeHTML(text)
      end
    end
  end
end
