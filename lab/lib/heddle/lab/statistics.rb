# frozen_string_literal: true

module Heddle
  module Lab
    # Medians, and how far a ratio of two of them can be trusted.
    module Statistics
      # @!attribute median [Float]
      # @!attribute low [Float] lower end of the 95 % confidence interval
      # @!attribute high [Float] its upper end
      Ratio = Struct.new(:median, :low, :high, keyword_init: true)

      TAIL = 0.025
      private_constant :TAIL

      module_function

      # @param values [Array<Numeric>]
      # @return [Float, nil] nil without values
      def median(values)
        return if values.empty?

        sorted = values.sort
        middle = sorted.size / 2
        sorted.size.odd? ? sorted[middle].to_f : (sorted[middle - 1] + sorted[middle]) / 2.0
      end

      # The median of paired ratios with its 95 % confidence interval.
      # @param pairs [Array<Array(Numeric, Numeric)>] numerator and denominator, taken in the same round
      # @return [Ratio, nil] nil when there is no pair
      def ratio(pairs)
        ratios = pairs.filter_map { |above, below| above.to_f / below unless below.zero? }
        return if ratios.empty?

        low, high = interval(ratios)
        Ratio.new(median: median(ratios), low: low, high: high)
      end

      # The ratio of two medians of values that are no pairs, with its 95 % confidence interval.
      # @param above [Array<Numeric>]
      # @param below [Array<Numeric>]
      # @return [Ratio, nil] nil without values
      def ratio_of_medians(above, below)
        return if above.empty? || below.empty? || below.any?(&:zero?)

        low, high = quantiles_of_ratios(medians(above).sort, medians(below).sort)
        Ratio.new(median: median(above) / median(below), low: low, high: high)
      end

      # Of all ratios of one figure to another. There are too many to list them: with 40 values each, 672,400.
      def quantiles_of_ratios(above, below)
        least, most = above.first.first / below.last.first, above.last.first / below.first.first
        [TAIL, 1 - TAIL].map do |wanted|
          (least..most).bsearch { |limit| share_of_ratios(above, below, limit) >= wanted } || most
        end
      end
      private_class_method :quantiles_of_ratios

      # The share of the ratios that are not above the limit. A larger figure above needs a larger one below.
      def share_of_ratios(above, below, limit)
        first, rest = 0, below.sum(&:last)
        above.sum do |figure, share|
          while first < below.size && figure / below[first].first > limit
            rest -= below[first].last
            first += 1
          end
          share * rest
        end
      end
      private_class_method :share_of_ratios

      # A percentile bootstrap (Efron 1979): the quantiles of the medians of all samples.
      # @param values [Array<Numeric>] at least one
      # @return [Array(Float, Float)] the ends of the median's 95 % confidence interval
      def interval(values) = quantiles(medians(values))

      # The medians of all samples, each with the share of the samples that have it.
      def medians(values)
        sorted = values.sort
        resampling(sorted.size).map { |low, high, share| [(sorted[low] + sorted[high]) / 2.0, share] }
      end
      private_class_method :medians

      def quantiles(figures)
        figures = figures.sort
        [TAIL, 1 - TAIL].map do |wanted|
          sum = 0.0
          (figures.find { |_, share| (sum += share) >= wanted } || figures.last).first
        end
      end
      private_class_method :quantiles

      # Where the medians of samples lie among sorted values, when each sample takes as many of the values as there are,
      # with replacement. The shares are exact, so that no sample need be drawn.
      # @param size [Integer] how many values there are
      # @return [Array<Array(Integer, Integer, Float)>] the two values between which a median lies, or the same twice,
      #   from 0; and the share of the samples that have it
      def resampling(size)
        (@resampling ||= {})[size] ||= begin
          middle = (size + 1) / 2
          below = (0..size).map { |count| at_least(middle, size, count) }
          alone = below.each_cons(2).map { |before, upto| upto - before }
          apart = size.odd? ? [] : (0...size).to_a.combination(2).map { |low, high| [low, high, both(low, high, size)] }
          apart.each { |low, _, share| alone[low] -= share }
          alone.each_with_index.map { |share, at| [at, at, share] } + apart
        end
      end

      # The share of the samples of which +middle+ or more are among the +count+ least values.
      def at_least(middle, size, count)
        one = count / size.to_f
        (middle..size).sum { |taken| choices(size, taken) * one**taken * (1 - one)**(size - taken) }
      end
      private_class_method :at_least

      # The share of the samples of which one half ends at the value +low+, and the other begins at +high+.
      def both(low, high, size)
        half = size / 2
        upto, from = (low + 1) / size.to_f, (size - high) / size.to_f
        choices(size, half) * (upto**half - (upto - 1.0 / size)**half) * (from**half - (from - 1.0 / size)**half)
      end
      private_class_method :both

      def choices(size, taken) = (1..taken).reduce(1) { |product, step| product * (size - taken + step) / step }
      private_class_method :choices

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
