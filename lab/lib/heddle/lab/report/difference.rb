# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # One figure of a model in a case, in two runs of a bench.
      # @!attribute model [String]
      # @!attribute case [String]
      # @!attribute metric [Metric]
      # @!attribute before [Float] the median
      # @!attribute after [Float]
      # @!attribute ratio [Statistics::Ratio] after / before
      # @!attribute floor [Float, nil] the larger of the two runs' noise floors, a share
      # @!attribute better [Symbol, nil] :higher or :lower
      Difference = Struct.new(:model, :case, :metric, :before, :after, :ratio, :floor, :better, keyword_init: true) do
        class << self
          # @param before [Summary]
          # @param after [Summary]
          # @param bench [Bench] with the options of the second run
          # @return [Array<Difference>] of the figures of the bench's tables, where both runs have them
          def all(before, after, bench)
            metrics = bench.tables(after).filter_map(&:metric).uniq(&:title)
            cells = metrics.product(before.cases & after.cases, before.models & after.models)
            cells.filter_map { |metric, name, model| of(before, after, bench, metric, name, model) }
          end

          # @param differences [Array<Difference>]
          # @return [Table] of those that are more than noise
          def table(differences)
            found = differences.reject(&:noise?)
            Table.new(title: "Beyond the noise: #{found.size} of #{differences.size} figures", prose: true,
              columns: ["model", "case", "figure", "before", "after", "after / before", "noise floor"],
              rows: found.map(&:row),
              notes: ["intervals: 95 %, of the ratio of the medians (bootstrap); where the machine was busier during " \
                "one of the runs, all its figures show it"])
          end

          private

          def of(before, after, bench, metric, name, model)
            runs = [before, after]
            values = runs.map { |summary| summary.by_round(model, name, metric).values }
            ratio = Statistics.ratio_of_medians(values.last, values.first)
            return unless ratio

            floors = runs.map { |run| run.floor(bench.reference_in(run, model, name, metric), name, metric) }
            better = bench.cases.find { |one| one.name == name }&.better || metric.better
            medians = values.map { |some| Statistics.median(some) }
            new(model: model, case: name, metric: metric, before: medians.first, after: medians.last, ratio: ratio,
              floor: floors.compact.max, better: better)
          end
        end

        # @return [Boolean] whether the two runs cannot be told apart by this figure
        def noise? = Statistics.within_noise?(ratio, floor)

        # @return [Array<String, Entry>]
        def row
          style = ((ratio.median > 1) == (better == :higher)) ? :ahead : :behind if better
          [model, self.case, metric.title, Matrix.figure(before), Matrix.figure(after), Entry.new(quotient, style),
            floor ? format("±%.1f %%", floor * 100) : "–"]
        end

        # @return [String]
        def to_s
          "#{model}, #{self.case}: #{metric.title} #{Matrix.figure(before)}, then #{Matrix.figure(after)}: #{quotient}"
        end

        private

        def quotient = "#{Matrix.figure(ratio.median)} [#{Matrix.figure(ratio.low)}–#{Matrix.figure(ratio.high)}]"
      end
    end
  end
end
