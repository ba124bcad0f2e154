# frozen_string_literal: true

module Heddle
  module Lab
    # Cases and metrics of benches.

    # One column, or row, of a bench: a delay, a size, an operation.
    # @!attribute name [String] unique within the bench
    # @!attribute params [Hash{String => Object}] passed to the child, as JSON
    # @!attribute unit [String, nil] of the metrics that have a unit by case; the titles of the others have theirs
    # @!attribute better [Symbol, nil] :higher or :lower, if it differs from the metric's
    Case = Struct.new(:name, :params, :unit, :better, keyword_init: true)

    # One figure taken from the measures of a round.
    # @!attribute key [Symbol]
    # @!attribute title [String] with its unit, if each case has the same
    # @!attribute unit_by_case [Boolean, nil] whether each case has a unit of its own
    # @!attribute better [Symbol] :higher or :lower
    # @!attribute value [Proc] measures (Hash{String => Numeric}) => Numeric or nil
    Metric = Struct.new(:key, :title, :unit_by_case, :better, :value, keyword_init: true)

    # The measures that every child takes; seconds, KiB and counts. A workload adds its own.
    module Measuring
      RATE = Metric.new(key: :rate, title: "Requests a second", better: :higher,
        value: ->(m) { m["operations"] / m["wall"] if m["wall"].positive? && m["operations"].positive? })
      CPU = Metric.new(key: :cpu, title: "CPU µs per request", better: :lower,
        value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
      PEAK_RSS = Metric.new(key: :peak_rss, title: "Peak RSS, MiB", better: :lower,
        value: ->(m) { m["peak_rss_kib"]&./(1024.0) })
    end
  end
end
