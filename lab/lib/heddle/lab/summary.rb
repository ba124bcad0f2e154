# frozen_string_literal: true

module Heddle
  module Lab
    # Medians and comparisons of a record's rounds, by model, case and metric.
    class Summary
      # @!attribute median [Float, nil] nil when no round was measured
      # @!attribute low [Float, nil] the least
      # @!attribute high [Float, nil] the most
      Spread = Struct.new(:median, :low, :high, keyword_init: true)

      # A model against its reference.
      # @!attribute ratio [Statistics::Ratio, nil]
      # @!attribute floor [Float, nil] noise floor of the reference, a share
      Comparison = Struct.new(:ratio, :floor, keyword_init: true) do
        # @return [Boolean] whether the two cannot be told apart
        def within_noise? = Statistics.within_noise?(ratio, floor)
      end

      # @return [Record]
      attr_reader :record

      # @param record [Record]
      def initialize(record)
        @record = record
        @rounds = record.rounds.group_by { |round| [round.model, round.case, round.twin] }
      end

      # @return [Array<String>] names of the models that could run, in the order asked
      def models = record.header["models"].map { |model| model["name"] }

      # @return [Array<String>] names of the cases
      def cases = record.header["cases"]

      # @param model [String]
      # @param name [String] of a case
      # @param metric [Metric]
      # @return [Spread]
      def spread(model, name, metric)
        values = by_round(model, name, metric).values
        Spread.new(median: Statistics.median(values), low: values.min, high: values.max)
      end

      # @param model [String]
      # @param name [String] of a case
      # @param metric [Metric]
      # @param twin [Boolean] of the model, or of its twin
      # @return [Hash{Integer => Float}] the values by their round, without those that were not measured
      def by_round(model, name, metric, twin: false)
        rounds(model, name, twin: twin).each_with_object({}) do |round, values|
          value = round.measures && metric.value.call(round.measures)
          values[round.round] = value if value&.finite? # a figure of each operation is not, where none succeeded
        end
      end

      # @param model [String]
      # @param reference [String]
      # @param name [String] of a case
      # @param metric [Metric]
      # @return [Comparison, nil] nil when either was not measured
      def compare(model, reference, name, metric)
        ratio = paired(by_round(model, name, metric), by_round(reference, name, metric))
        ratio && Comparison.new(ratio: ratio, floor: floor(reference, name, metric))
      end

      # @return [Float, nil] the difference between the model and its twin, a share
      def floor(model, name, metric)
        Statistics.floor(paired(by_round(model, name, metric), by_round(model, name, metric, twin: true)))
      end

      # @return [Boolean] whether some measure of the cell is true, as "extrapolated"
      def marked?(model, name, measure)
        rounds(model, name).any? { |round| round.measures && round.measures[measure] == true }
      end

      # @return [Boolean] whether a round of the cell was begun
      def measured?(model, name) = rounds(model, name).any?

      # @return [Array<String>] the errors of a cell, each once
      def troubles(model, name)
        rounds(model, name).filter_map do |round|
          next round.error if round.error

          count = round.measures["errors"].to_i
          "#{count} errors, the first: #{round.measures["first_error"]}" if count.positive?
        end.uniq
      end

      private

      def rounds(model, name, twin: false) = @rounds.fetch([model, name, twin], [])

      def paired(above, below)
        pairs = above.filter_map { |round, value| [value, below[round]] if below[round] }
        Statistics.ratio(pairs)
      end
    end
  end
end
