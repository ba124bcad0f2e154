# frozen_string_literal: true

module Heddle
  module Lab
    class History
      # One figure of a model in a case, over the runs of a history.
      class Line
        # A change of the level, larger than the noise.
        # @!attribute before [Integer] the place of the last run of the old level
        # @!attribute after [Integer] the place of the first run of the new one
        # @!attribute from [Float] the median of the old level
        # @!attribute to [Float] the median of the new one
        # @!attribute verdict [String] "better", "worse" or "differs"
        Step = Struct.new(:before, :after, :from, :to, :verdict, keyword_init: true) do
          # @return [Float]
          def ratio = to / from
        end

        # @return [Hash{String => Object}] "title", "better" and "by_case"
        attr_reader :metric
        # @return [Hash{String => Object}] "name", "unit" and "better"
        attr_reader :case
        # @return [String]
        attr_reader :model
        # @return [Array<Float, nil>] the median of each run's rounds, by the run's place
        attr_reader :figures
        # @return [Float, nil] the noise floor, a share: the median of the runs' own
        attr_reader :floor

        # @param entries [Array<Entry>] of one kind, in their order
        # @param metric [Hash{String => Object}]
        # @param bench_case [Hash{String => Object}]
        # @param model [String]
        # @param ratios [Boolean] to the reference, round by round, instead of figures
        def initialize(entries, metric, bench_case, model, ratios:)
          @metric = metric
          @case = bench_case
          @model = model
          reference = newest(entries) { |entry| entry.reference(title, name, model) }
          @floor = Statistics.median(entries.filter_map { |entry| entry.floor(title, name, reference) })
          @figures = entries.map { |entry| median(entry, ratios ? reference : nil) }
          @itself = ratios && reference == model
        end

        # @return [Boolean] whether there is something to draw
        def any? = @figures.any? && !@itself

        # @return [String] the metric's title
        def title = @metric["title"]

        # @return [String] the case's name
        def name = @case["name"]

        # @return [String] the metric's title, with the case's unit where the metric has none
        def measure = (@metric["by_case"] && @case["unit"]) ? "#{title}, #{@case["unit"]}" : title

        # @return [Float] of the newest run that has one
        def newest_figure = @figures.compact.last

        # @return [Array<Step>]
        def steps
          @steps ||= levels.each_cons(2).map do |old, new|
            from, to = level(old), level(new)
            Step.new(before: old.last, after: new.first, from: from, to: to, verdict: verdict(from, to))
          end
        end

        # @return [Array<Array<Integer>>] the places of the runs of each level
        def levels
          @levels ||= begin
            places = @figures.each_index.select { |place| @figures[place] }
            found ? found.levels.map { |range| places[range] } : [places]
          end
        end

        # @return [Float, nil] by how many times the figure became larger little by little, where there is no step
        def drift = found&.drift

        # @return [Boolean] whether there are enough runs to tell a step from an outlier
        def enough? = Steps.enough?(@figures.compact.size)

        # @param places [Array<Integer>] of a level
        # @return [Float] its median
        def level(places) = Statistics.median(@figures.values_at(*places))

        private

        # A figure of 0 has no ratio to others.
        def found
          return @found if defined?(@found)

          present = @figures.compact
          @found = (Steps.new(present, @floor.to_f) if present.any? && present.all?(&:positive?))
        end

        def newest(entries)
          entries.reverse_each do |entry|
            value = yield entry
            return value if value
          end
          nil
        end

        def median(entry, reference)
          rounds = entry.rounds(title, name, @model)
          return Statistics.median(rounds.values) unless reference

          below = entry.rounds(title, name, reference)
          Statistics.ratio(rounds.filter_map { |round, value| [value, below[round]] if below[round] })&.median
        end

        def verdict(from, to)
          better = @case["better"] || @metric["better"]
          return "differs" unless better

          ((to > from) == (better == "higher")) ? "better" : "worse"
        end
      end
    end
  end
end
