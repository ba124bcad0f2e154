# frozen_string_literal: true

require "test_helper"
require "opentelemetry/sdk"
require "opentelemetry-metrics-sdk"
require "heddle"
require "heddle/opentelemetry"

# Heddle.metrics in the readers of OpenTelemetry's metrics SDK.
class OpenTelemetryMetricsTest < Minitest::Test
  mode :fiber

  def setup
    @provider = OpenTelemetry::SDK::Metrics::MeterProvider.new
    @reader = OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new
    @provider.add_metric_reader(@reader)
    @provider.meter("program").create_counter("requests").add(1)
    Heddle::OpenTelemetrySupport.export_metrics(@provider)
  end

  def teardown = Heddle.measure_times = false

  def test_a_reader_collects_every_metric
    work
    pulled = collect(@reader)
    assert pulled.key?("requests")
    Heddle.metrics.each do |metric|
      data = pulled.fetch(metric.name)
      assert_equal [metric.unit, metric.help, "heddle"], [data.unit, data.description, data.instrumentation_scope.name]
      kind = {counter: :observable_counter, gauge: :observable_gauge, histogram: :histogram}.fetch(metric.kind)
      assert_equal [kind, :cumulative, metric.kind == :counter],
        [data.instrument_kind, data.aggregation_temporality, data.is_monotonic], metric.name
      data.data_points.each do |point|
        assert(point.attributes.all? { |key, value| key.is_a?(String) && value.is_a?(String) })
        assert_operator point.start_time_unix_nano, :<, point.time_unix_nano
      end
    end
    completed = pulled.fetch("heddle.tasks.ended").data_points
      .find { |point| point.attributes["status"] == "completed" }
    assert_operator completed.value, :>=, 6
  end

  # What the SDK's own counters with callbacks do not, which add what is observed to what was observed before.
  def test_a_counter_that_is_collected_twice_is_the_total
    work
    values = Array.new(3) { collect(@reader).fetch("heddle.tasks.started").data_points.first.value }
    assert_equal values.first, values.last
    assert_equal Heddle.metrics["heddle.tasks.started"].values[{}], values.last
  end

  def test_lag_is_a_histogram
    work
    point = collect(@reader).fetch("heddle.loop.lag").data_points.first
    assert_equal Heddle::Metrics::BOUNDS, point.explicit_bounds
    assert_equal point.explicit_bounds.size + 1, point.bucket_counts.size
    assert_equal point.count, point.bucket_counts.sum
    assert_operator point.count, :>, 0
    assert_operator point.sum, :>, 0
    kinds = collect(@reader).fetch("heddle.task.wait").data_points.map { |each| each.attributes.fetch("kind") }
    assert_equal %w[block io name select sleep], kinds.sort
  end

  def test_readers_that_come_later_and_twice_is_harmless
    Heddle::OpenTelemetrySupport.export_metrics(@provider)
    later = OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new
    @provider.add_metric_reader(later)
    later.pull
    names = later.metric_snapshots.map(&:name)
    assert_equal names.uniq, names
    assert_includes names, "heddle.loop.lag"
  end

  def test_a_periodic_reader_exports_while_a_loop_runs
    exporter = OpenTelemetry::SDK::Metrics::Export::InMemoryMetricPullExporter.new
    periodic = OpenTelemetry::SDK::Metrics::Export::PeriodicMetricReader.new(exporter: exporter,
      export_interval_millis: 20, export_timeout_millis: 10_000)
    @provider.add_metric_reader(periodic)
    Heddle.run do
      wait_until(what: "an export") { exporter.metric_snapshots.any? { |data| data.name == "heddle.loop.lag" } }
    end
  ensure
    periodic&.shutdown
  end

  def test_a_provider_without_readers_is_refused
    error = assert_raises(ArgumentError) do
      Heddle::OpenTelemetrySupport.export_metrics(OpenTelemetry::Metrics::MeterProvider.new)
    end
    assert_match(/has no readers to hand metrics to: load the gem opentelemetry-metrics-sdk/, error.message)
  end

  private

  def work = Heddle.run { 5.times.map { Heddle.spawn { sleep(0.001) } }.each(&:wait) }

  def collect(reader)
    reader.reset
    reader.pull
    reader.metric_snapshots.to_h { |data| [data.name, data] }
  end
end
