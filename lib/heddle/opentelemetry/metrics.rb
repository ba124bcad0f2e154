# frozen_string_literal: true

require_relative "../metrics"
require_relative "../version"

module Heddle
  module OpenTelemetrySupport
    # Hands {Heddle.metrics} to the metrics SDK. Each reader gets a stream of its own, and asks it whenever it collects.
    #
    # The API's own instruments cannot carry these numbers: a histogram takes single values only, an observable
    # instrument has one set of attributes, and up to 0.22 the SDK adds each observed total of a counter to the last.
    class Metrics
      KINDS = {counter: :observable_counter, gauge: :observable_gauge, histogram: :histogram}.freeze
      private_constant :KINDS

      # For the readers that the provider gets later.
      module Readers
        # Has the reader collect Heddle's metrics, too.
        def add_metric_reader(reader)
          super.tap { Metrics.of(self)&.attach(reader) }
        end
      end
      private_constant :Readers

      @of = {}.compare_by_identity

      class << self
        # @param provider [OpenTelemetry::SDK::Metrics::MeterProvider]
        # @return [Metrics, nil]
        def of(provider) = @of[provider]

        # @param provider [OpenTelemetry::SDK::Metrics::MeterProvider]
        # @return [void]
        # @raise [ArgumentError] for a provider of the API alone, which has no readers
        def export(provider)
          return if of(provider)

          unless provider.respond_to?(:metric_readers)
            raise ArgumentError, "#{provider.class} has no readers to hand metrics to: load the gem " \
              "opentelemetry-metrics-sdk, and call this after OpenTelemetry::SDK.configure"
          end

          @of[provider] = metrics = new(provider)
          provider.singleton_class.prepend(Readers)
          provider.metric_readers.each { |reader| metrics.attach(reader) }
          Heddle.measure_times = true
        end
      end

      def initialize(provider)
        @provider = provider
        @scope = ::OpenTelemetry::SDK::InstrumentationScope.new("heddle", VERSION)
        @began = now
        @forks = Heddle.forks
      end

      # @param reader [OpenTelemetry::SDK::Metrics::Export::MetricReader]
      # @return [void]
      def attach(reader)
        reader.metric_store.add_metric_stream(Stream.new(self))
      end

      # @return [Array<OpenTelemetry::SDK::Metrics::State::MetricData>]
      def collect(at)
        begin_again unless @forks == Heddle.forks
        Heddle.metrics.map { |metric| data(metric, at) }
      end

      private

      # A child's numbers begin with zeros.
      def begin_again
        @began = now
        @forks = Heddle.forks
      end

      def now = ::OpenTelemetry::Common::Utilities.time_in_nanoseconds

      def data(metric, at)
        points = metric.values.map { |labels, value| point(metric, labels.transform_keys(&:to_s), value, at) }
        ::OpenTelemetry::SDK::Metrics::State::MetricData.new(metric.name, metric.help, metric.unit,
          KINDS.fetch(metric.kind), @provider.resource, @scope, points, :cumulative, @began, at,
          metric.kind == :counter)
      end

      # By the names of the members: their order differs between versions of the SDK.
      def point(metric, attributes, value, at)
        point = if metric.kind == :histogram
          ::OpenTelemetry::SDK::Metrics::Aggregation::HistogramDataPoint.new
        else
          ::OpenTelemetry::SDK::Metrics::Aggregation::NumberDataPoint.new
        end
        point.attributes = attributes
        point.start_time_unix_nano = @began
        point.time_unix_nano = at
        return point.tap { point.value = value } unless metric.kind == :histogram

        point.count = value.count
        point.sum = value.sum
        point.bucket_counts = value.counts
        point.explicit_bounds = Heddle::Metrics::BOUNDS
        point
      end

      # What the SDK's store of a reader asks.
      class Stream
        attr_writer :cardinality_limit # of the store; the labels here are few

        def initialize(metrics)
          @metrics = metrics
        end

        # @return [Array<OpenTelemetry::SDK::Metrics::State::MetricData>]
        def collect(_start, at) = @metrics.collect(at)
      end
      private_constant :Stream
    end
    private_constant :Metrics
  end
end
