# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # A run of a bench as the page of results wants it: every value of every metric that the record has, and with what
      # each is compared.
      class Run
        measure = ->(key) { ->(measures) { measures[key] } }
        # What is measured of every bench, and of those that read bodies.
        MEASURES = [
          Metric.new(key: :wall, title: "Wall time, seconds", better: :lower, value: measure["wall"]),
          Metric.new(key: :cpu_seconds, title: "CPU time, seconds", better: :lower, value: measure["cpu"]),
          Metric.new(key: :user, title: "User CPU time, seconds", better: :lower, value: measure["user"]),
          Metric.new(key: :system, title: "System CPU time, seconds", better: :lower, value: measure["system"]),
          Metric.new(key: :gc, title: "GC time, seconds", better: :lower, value: measure["gc"]),
          Metric.new(key: :allocations, title: "Objects allocated", better: :lower, value: measure["allocations"]),
          Measuring::PEAK_RSS,
          Metric.new(key: :chunks, title: "Chunks", value: measure["chunks"]),
          Metric.new(key: :mean_chunk, title: "Mean chunk size, bytes",
            value: ->(m) { m["bytes"] / m["chunks"].to_f if m["chunks"].to_i.positive? }),
          Metric.new(key: :largest_chunk, title: "Max chunk size, bytes", value: measure["largest_chunk"]),
          Metric.new(key: :smallest_chunk, title: "Min chunk size, bytes", value: measure["smallest_chunk"])
        ].freeze
        # More than this is noise in any measurement, and would make the page large.
        DIGITS = 6
        KEPT = %i[allocations peak_rss].freeze
        private_constant :MEASURES, :DIGITS, :KEPT

        # @param name [String] of its file, without the extension
        # @param bench [Bench] with the options of the run
        # @param record [Record]
        # @param facts [Array<String>] on which the figures depend
        def initialize(name, bench, record, facts)
          @name = name
          @bench = bench
          @record = record
          @facts = facts
          @summary = Summary.new(record)
        end

        # @return [Hash{String => Object}] values and such by metric, case and model: by their places in the lists
        def to_h
          environment = @record.header["environment"]
          {
            "name" => @name, "bench" => @record.header["bench"], "title" => @bench.title, "ruby" => ruby(environment),
            "started" => @record.header["started_at"], "facts" => @facts, "doubts" => Environment.doubts(environment),
            **figures_of(metrics),
            "extrapolated" => cells.select { |name, model| @summary.marked?(model, name, "extrapolated") }
              .map { |cell| place(*cell) },
            "troubles" => cells.flat_map do |name, model|
              @summary.troubles(model, name).map { |trouble| [*place(name, model), trouble] }
            end
          }
        end

        # What a history keeps: the metrics of the bench's tables, memory and objects.
        # @return [Hash{String => Object}] as in {#to_h}
        def kept_figures
          own = @bench.tables(@summary).filter_map(&:metric).map(&:title)
          figures_of(metrics.select { |metric| own.include?(metric.title) || KEPT.include?(metric.key) })
        end

        # @return [Integer] the most rounds that a cell has
        def rounds = @record.rounds.map(&:round).max.to_i

        private

        def models = @summary.models

        def cells = @summary.cases.product(models)

        def place(name, model) = [@summary.cases.index(name), models.index(model)]

        def ruby(environment) = "#{environment["ruby"][/[\d.]+/]}#{" +YJIT" if environment["yjit"]}"

        # The bench's own units, where it still has the case.
        def cases
          known = @bench.cases.to_h { |bench_case| [bench_case.name, bench_case] }
          @summary.cases.map do |name|
            {"name" => name, "unit" => known[name]&.unit, "better" => known[name]&.better}.compact
          end
        end

        # Those of the bench's tables come first, as in its report.
        def metrics
          @metrics ||= [*@bench.tables(@summary).filter_map(&:metric), *MEASURES].uniq(&:title).select do |metric|
            cells.any? { |name, model| @summary.by_round(model, name, metric).any? }
          end
        end

        def figures_of(metrics)
          {
            "cases" => cases, "models" => models,
            "metrics" => metrics.map do |metric|
              {"title" => metric.title, "better" => metric.better, "by_case" => metric.unit_by_case}.compact
            end,
            "values" => by_cell(metrics) { |metric, name, model| values(metric, name, model) },
            "references" => by_cell(metrics) { |metric, name, model| reference(metric, name, model) },
            "floors" => by_cell(metrics) { |metric, name, model| @summary.floor(model, name, metric)&.round(DIGITS) }
          }
        end

        def by_cell(metrics)
          metrics.map { |metric| @summary.cases.map { |name| models.map { |model| yield(metric, name, model) } } }
        end

        def values(metric, name, model)
          values = @summary.by_round(model, name, metric)
          (1..values.keys.max).map { |round| shorten(values[round]) } unless values.empty?
        end

        def shorten(number) = number.is_a?(Float) ? number.round(DIGITS - 1 - magnitude(number)) : number

        def magnitude(number) = number.zero? ? 0 : Math.log10(number.abs).floor

        def reference(metric, name, model) = models.index(@bench.reference_in(@summary, model, name, metric))
      end
    end
  end
end
