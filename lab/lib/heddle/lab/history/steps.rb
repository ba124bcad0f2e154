# frozen_string_literal: true

module Heddle
  module Lab
    class History
      # Where the level of a series of figures changes.
      #
      # Optimal partitioning (Jackson et al. 2005, "An algorithm for optimal partitioning of data on an interval") cuts
      # the series so that the cost of its segments, and a penalty for each cut, are least. A segment's cost is the sum
      # of the distances from its median: unlike a sum of squares, it gives a lone outlier no segment of its own
      # (Fearnhead & Rigaill 2019, "Changepoint Detection in the Presence of Outliers"). The penalty grows with the
      # logarithm of the length (Yao 1988). Nothing is drawn at random: the same figures give the same steps.
      #
      # MongoDB and Hunter search the results of their benches with E-divisive (Daly et al. 2020, Fleming et al. 2023),
      # which has to estimate the noise from the figures alone, and so needs many of them. Here each run brings its own
      # noise floor, so that three runs on each side of a step are enough.
      #
      # Figures are compared by their logarithms, because noise is a share of a figure.
      class Steps
        # The fewest runs between two steps: what fewer show may be an outlier.
        LEAST = 3
        # Gives less than one step in a thousand series of noise, of 6 to 40 runs.
        PENALTY = 4
        # The mean distance of normally distributed figures from their median, in standard deviations.
        DISTANCE = 0.798
        # The median distance between two of them.
        DIFFERENCE = 0.954
        # A noise floor is half a 95 % interval of the ratio of two figures: so many standard deviations of one figure.
        FLOOR = 2.77
        # The least noise, for figures that are counts: they are the same in each run.
        LEAST_NOISE = 0.0005
        private_constant :PENALTY, :DISTANCE, :DIFFERENCE, :FLOOR, :LEAST_NOISE

        # @return [Array<Integer>] places in the series: the first of each new level
        attr_reader :places
        # @return [Float, nil] by how many times the figures became larger from the first to the last, where they change
        #   a little with each run instead of in steps
        attr_reader :drift

        # @param figures [Array<Float>] above 0, in their order
        # @param floor [Float] the noise floor, a share: smaller steps do not count
        def initialize(figures, floor)
          @series = figures.map { |figure| Math.log(figure) }
          @least_change = Math.log(1 + floor)
          @noise = DISTANCE * [deviation, @least_change / FLOOR, LEAST_NOISE].max
          @penalty = PENALTY * Math.log([@series.size, 2].max)
          @places = Steps.enough?(@series.size) ? exceeding(cut) : []
          @drift = drift_of_all
          @places = [] if @drift
        end

        # @param size [Integer]
        # @return [Boolean] whether so many runs can show a step
        def self.enough?(size) = size >= 2 * LEAST

        # @return [Array<Range>] the places of each level, in their order
        def levels = ranges(@places)

        private

        # Of the noise: from the differences of neighbours, of which steps spoil only a few.
        def deviation
          (Statistics.median(@series.each_cons(2).map { |one, other| (other - one).abs }) || 0) / DIFFERENCE
        end

        def cut
          costs = @series.each_index.map { |from| costs_from(from) }
          least, begun = [-@penalty], []
          LEAST.upto(@series.size) do |upto|
            least[upto], begun[upto] = (0..upto - LEAST).filter_map do |from|
              [least[from] + costs[from][upto - from] / @noise + @penalty, from] if least[from]
            end.min
          end
          trace(begun)
        end

        def trace(begun)
          places = []
          upto = @series.size
          places.unshift(upto) while (upto = begun[upto]).positive?
          places
        end

        # The costs of the segments that begin there, by their lengths. A figure that joins a segment adds its distance
        # from the median or, where the segment has an even number of figures, from the nearer one of the middle two.
        def costs_from(from)
          sorted, cost = [], 0.0
          [0.0, *@series.drop(from).map do |figure|
            low, high = sorted[(sorted.size - 1) / 2], sorted[sorted.size / 2]
            cost += [low - figure, figure - high, 0.0].max unless sorted.empty?
            sorted.insert(sorted.bsearch_index { |other| other >= figure } || sorted.size, figure)
            cost
          end]
        end

        # Joins the levels that differ least, until each step is larger than the noise floor.
        def exceeding(places)
          until places.empty?
            medians = ranges(places).map { |range| Statistics.median(@series[range]) }
            changes = medians.each_cons(2).map { |before, after| (after - before).abs }
            return places if changes.min > @least_change

            places = places.dup.tap { |some| some.delete_at(changes.index(changes.min)) }
          end
          places
        end

        def ranges(places) = [0, *places, @series.size].each_cons(2).map { |from, upto| from...upto }

        # If a straight line fits no worse than the steps do, there is no step. The line is that of Theil and Sen
        # (1968): its slope is the median of all slopes.
        def drift_of_all
          return if @places.empty?

          slope = Statistics.median(@series.each_index.to_a.combination(2).map do |one, other|
            (@series[other] - @series[one]) / (other - one)
          end)
          change = slope * (@series.size - 1)
          Math.exp(change) if change.abs > @least_change && cost_of_line(slope) <= cost_of_levels
        end

        def cost_of_line(slope)
          level = @series.each_with_index.map { |figure, place| figure - slope * place }
          distances(level) / @noise + @penalty
        end

        def cost_of_levels
          levels.sum { |range| distances(@series[range]) } / @noise + @penalty * @places.size
        end

        def distances(figures)
          middle = Statistics.median(figures)
          figures.sum { |figure| (figure - middle).abs }
        end
      end
    end
  end
end
