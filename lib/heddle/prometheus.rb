# frozen_string_literal: true

require_relative "scheduler"
require_relative "core/required_gem"
Heddle::RequiredGem.load("prometheus/client", "heddle/prometheus", "prometheus-client")
require_relative "metrics"

module Heddle
  # {Heddle.metrics} in a registry of the gem prometheus-client: `heddle.loop.lag` as the histogram
  # `heddle_loop_lag_seconds`, `heddle.tasks.started` as the counter `heddle_tasks_started_total`.
  #
  # The numbers are those of the process that is asked. The servers of the gem ask one process: with several workers,
  # give each an address of its own, or push.
  module PrometheusSupport
    # One metric, as the registry's formats ask for it.
    #
    # @api private
    class Metric
      # @return [Symbol]
      attr_reader :name, :type
      # @return [String]
      attr_reader :docstring
      # @return [Hash] none
      attr_reader :preset_labels

      # @param metric [Metrics::Metric]
      def initialize(metric)
        @metric = metric.name
        @name = PrometheusSupport.name_of(metric).to_sym
        @type = metric.kind
        @docstring = metric.help
        @preset_labels = {}.freeze
      end

      # @return [Array<Symbol>]
      def labels = Heddle.metrics[@metric].values.keys.flat_map(&:keys).uniq

      # @return [Hash{Hash{Symbol => String} => Numeric, Hash{String => Numeric}}]
      def values = Heddle.metrics[@metric].values.transform_values { |value| number(value) }

      # @return [Numeric, Hash{String => Numeric}, nil] nil for labels that do not exist
      def get(labels: {}) = values[labels.transform_values(&:to_s)]

      private

      # As the gem's own histogram returns them: cumulated.
      def number(value)
        return value unless @type == :histogram

        sum = 0
        buckets = BOUNDS.zip(value.counts).to_h { |bound, count| [bound, (sum += count).to_f] }
        buckets.merge("+Inf" => value.count.to_f, "sum" => value.sum)
      end
    end

    BOUNDS = Metrics::BOUNDS.map(&:to_s).freeze
    private_constant :BOUNDS

    class << self
      # Registers all metrics, and has Heddle measure times ({Heddle.measure_times=}). For a registry that has them it
      # does nothing.
      #
      #   require "heddle/prometheus"
      #   Heddle::PrometheusSupport.register
      #
      # @param registry [Prometheus::Client::Registry]
      # @return [Prometheus::Client::Registry]
      def register(registry = ::Prometheus::Client.registry)
        Heddle.metrics.each do |metric|
          registry.register(Metric.new(metric)) unless registry.exist?(name_of(metric).to_sym)
        end
        Heddle.measure_times = true
        registry
      end

      # @api private
      # @param metric [Metrics::Metric]
      # @return [String] the name by Prometheus' conventions
      def name_of(metric)
        unit = "_seconds" if metric.unit == "s"
        "#{metric.name.tr(".", "_")}#{unit}#{"_total" if metric.kind == :counter}"
      end
    end
  end
end
