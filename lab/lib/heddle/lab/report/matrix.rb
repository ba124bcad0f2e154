# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # The tables of every bench: a metric of each model in each case, ratios to a reference, errors.
      class Matrix
        # @param summary [Summary]
        # @param bench [Bench]
        # @param models_down [Boolean] models as rows and cases as columns, or the other way round
        # @param cases [Array<String>] names of the cases to show
        def initialize(summary, bench, models_down: true, cases: summary.cases)
          @summary = summary
          @cases = cases
          @bench = bench
          @models_down = models_down
        end

        # @param metric [Metric]
        # @param spread [Boolean] also the least and the most
        # @return [Table]
        def values(metric, spread: true)
          extrapolated = false
          table =
            build("#{metric.title}: median#{" (least–most)" if spread} of #{@summary.record.header["rounds_asked"]}",
              units: metric.unit_by_case) do |model, name|
              entry = value(model, name, metric, spread)
              next entry unless @summary.marked?(model, name, "extrapolated")

              extrapolated = true
              Entry.new("#{entry}*", entry.style)
            end
          table.notes << "* extrapolated from a smaller sample, as in 2009" if extrapolated
          table.metric = metric
          table
        end

        # If a reference was not measured, the next one takes its place.
        # @param metric [Metric]
        # @return [Table]
        def ratios(metric)
          table = build("#{metric.title}, as a ratio to the reference: median [95 % interval]") do |model, name|
            reference = @bench.reference_in(@summary, model, name, metric)
            (model == reference) ? Entry.new("1") : ratio(model, reference, name, metric)
          end
          cases_by_reference(metric).each { |reference, names| table.notes << floor_note(reference, names, metric) }
          table.notes << "≈ within noise: the interval holds 1, or the difference is smaller than what the reference " \
            "shows against itself"
          table
        end

        # @return [Table, nil] what went wrong, if anything did
        def troubles
          rows = @summary.models.product(@cases).flat_map do |model, name|
            @summary.troubles(model, name).map { |trouble| [model, name, Entry.new(trouble, :error)] }
          end
          unless rows.empty?
            Table.new(title: "What went wrong", columns: %w[model case what], rows: rows, notes: [], prose: true)
          end
        end

        # @param number [Float, nil]
        # @return [String] with three or four figures
        def self.figure(number)
          return "–" unless number
          return number.round.to_s if number.abs >= 1000
          return format("%.0f", number) if number.abs >= 100
          return format("%.1f", number) if number.abs >= 10

          format("%.2f", number)
        end

        private

        # @param units [Boolean, nil] with the cases' units
        def build(title, units: false)
          heading = ->(name) { units ? with_unit(name) : name }
          down, across = @models_down ? [@summary.models, @cases] : [@cases, @summary.models]
          rows = down.map do |first|
            [heading.call(first), *across.map { |second| @models_down ? yield(first, second) : yield(second, first) }]
          end
          Table.new(title: title, columns: ["", *across.map { |name| heading.call(name) }], rows: rows, notes: [])
        end

        # A case's name, with its unit if it has its own. The name of a model stays as it is.
        def with_unit(name)
          unit = case_of(name)&.unit
          unit ? "#{name}, #{unit}" : name
        end

        # @return [Case, nil] nil for a case of a record that this machine could not measure
        def case_of(name) = @bench.cases.find { |bench_case| bench_case.name == name }

        def value(model, name, metric, with_spread)
          spread = @summary.spread(model, name, metric)
          unless spread.median
            return @summary.troubles(model, name).empty? ? Entry.new("–") : Entry.new("failed", :error)
          end

          text = Matrix.figure(spread.median)
          text += " (#{Matrix.figure(spread.low)}–#{Matrix.figure(spread.high)})" if with_spread
          Entry.new(text, @summary.troubles(model, name).empty? ? nil : :error)
        end

        def ratio(model, reference, name, metric)
          comparison = @summary.compare(model, reference, name, metric)
          return Entry.new("–") unless comparison

          ratio = comparison.ratio
          text = "#{Matrix.figure(ratio.median)} [#{Matrix.figure(ratio.low)}–#{Matrix.figure(ratio.high)}]"
          return Entry.new("≈ #{text}", :noise) if comparison.within_noise?

          better = case_of(name)&.better || metric.better
          Entry.new(text, ((ratio.median > 1) == (better == :higher)) ? :ahead : :behind)
        end

        # @return [Hash{String => Array<String>}] each model with which others are compared, and in which cases
        def cases_by_reference(metric)
          @summary.models.product(@cases).group_by { |model, name| @bench.reference_in(@summary, model, name, metric) }
            .transform_values { |uses| @cases & uses.map(&:last) }
        end

        def floor_note(reference, names, metric)
          floors = names.map do |name|
            floor = @summary.floor(reference, name, metric)
            "#{name} #{floor ? format("±%.1f %%", floor * 100) : "–"}"
          end
          "noise floor (#{reference} against itself): #{floors.join(", ")}"
        end
      end
    end
  end
end
