# frozen_string_literal: true

module Heddle
  module Lab
    # Medians, and how far a ratio of two of them can be trusted.
    module Statistics
      # @!attribute median [Float]
      # @!attribute low [Float] lower end of the 95 % confidence interval
      # @!attribute high [Float] its upper end
      Ratio = Struct.new(:median, :low, :high, keyword_init: true)

      RESAMPLES = 2000
      private_constant :RESAMPLES

      module_function

      # @param values [Array<Numeric>]
      # @return [Float, nil] nil without values
      def median(values)
        return if values.empty?

        sorted = values.sort
        middle = sorted.size / 2
        sorted.size.odd? ? sorted[middle].to_f : (sorted[middle - 1] + sorted[middle]) / 2.0
      end

      # The median of paired ratios with a percentile bootstrap (Efron 1979) of its 95 % confidence interval.
      # @param pairs [Array<Array(Numeric, Numeric)>] numerator and denominator, taken in the same round
      # @param seed [Integer] makes the interval repeatable
      # @return [Ratio, nil] nil when there is no pair
      def ratio(pairs, seed: 1)
        ratios = pairs.filter_map { |above, below| above.to_f / below unless below.zero? }
        return if ratios.empty?

        random = Random.new(seed)
        medians = Array.new(RESAMPLES) { median(Array.new(ratios.size) { ratios.sample(random: random) }) }.sort
        Ratio.new(median: median(ratios), low: medians[RESAMPLES * 25 / 1000],
          high: medians[RESAMPLES * 975 / 1000 - 1])
      end

      # The relative difference between two measurements of the same thing.
      # @param ratio [Ratio, nil] of a model against its twin
      # @return [Float, nil] a share: 0.02 is ±2 %
      def floor(ratio) = ratio && [(ratio.low - 1).abs, (ratio.high - 1).abs].max

      # @param ratio [Ratio]
      # @param floor [Float, nil]
      # @return [Boolean] whether the ratio cannot be told from 1
      def within_noise?(ratio, floor)
        1.between?(ratio.low, ratio.high) || (ratio.median - 1).abs <= floor.to_f
      end
    end
  end
end
