# frozen_string_literal: true

require "test_helper"
require "json"
require "prometheus/client"
require "prometheus/client/formats/text"
require "heddle"
require "heddle/prometheus"

# Heddle.metrics in a registry of prometheus-client, in the text that Prometheus reads.
class PrometheusTest < Minitest::Test
  mode :fiber

  NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/
  SAMPLE = /\A(#{NAME})(?:\{((?:[a-z_]+="[^"\\\n]*",?)+)\})? (-?\d+(?:\.\d+)?(?:e[+-]\d+)?)\z/
  private_constant :NAME, :SAMPLE

  def setup
    @registry = Prometheus::Client::Registry.new
    @registry.counter(:requests_total, docstring: "The program's own").increment
    Heddle::PrometheusSupport.register(@registry)
  end

  def teardown = Heddle.measure_times = false

  def test_the_text_has_every_metric_with_type_and_help
    work
    types, help, samples = parsed
    assert_equal "counter", types.fetch("requests_total")
    Heddle.metrics.each do |metric|
      name = Heddle::PrometheusSupport.name_of(metric)
      assert_equal metric.kind.to_s, types.fetch(name)
      assert_equal metric.help, help.fetch(name)
      assert_equal metric.kind == :counter, name.end_with?("_total"), name
      assert_equal metric.unit == "s", name.match?(/_seconds(?:_total)?\z/), name
      refute_empty samples.keys.grep(/\A#{name}(?:_bucket|\b)/), name
    end
    assert_operator samples.fetch(%(heddle_tasks_ended_total{status="completed"})), :>=, 6
  end

  def test_a_histogram_is_cumulated_and_has_sum_and_count
    work
    _, _, samples = parsed
    buckets = samples.select { |name, _| name.start_with?("heddle_loop_lag_seconds_bucket") }
    bounds = buckets.keys.map { |name| name[/le="(.+)"/, 1] }
    assert_equal "+Inf", bounds.pop
    assert_equal Heddle::Metrics::BOUNDS, bounds.map { |bound| Float(bound) }
    counts = buckets.values
    assert_equal counts.sort, counts
    assert_operator counts.last, :>, 0
    assert_equal counts.last, samples.fetch("heddle_loop_lag_seconds_count")
    assert_operator samples.fetch("heddle_loop_lag_seconds_sum"), :>, 0
    assert_operator samples.fetch(%(heddle_task_wait_seconds_sum{kind="sleep"})), :>=, 0.004
  end

  def test_registering_has_times_measured_and_twice_is_harmless
    assert_predicate Heddle, :measure_times?
    assert_same @registry, Heddle::PrometheusSupport.register(@registry)
    metric = @registry.get(:heddle_tasks_started_total)
    before = metric.get
    work
    assert_operator metric.get, :>=, before + 6
    assert_equal %i[status], @registry.get(:heddle_tasks_ended_total).labels
    assert_kind_of Numeric, @registry.get(:heddle_tasks_ended_total).get(labels: {status: "failed"})
    assert_nil @registry.get(:heddle_tasks_ended_total).get(labels: {status: "unknown"})
  end

  def test_a_scrape_inside_a_task_sees_that_task
    Heddle.run do
      Heddle.spawn { sleep }.tap do |task|
        _, _, samples = parsed
        assert_operator samples.fetch("heddle_tasks"), :>=, 2
        task.cancel
      end
    end
  end

  DASHBOARD = File.expand_path("../../doc/grafana/heddle.json", __dir__)

  def test_grafanas_dashboard_asks_for_what_there_is
    work
    types, _, samples = parsed
    labels = samples.keys.group_by { |sample| sample[/\A\w+/] }
      .transform_values { |all| all.flat_map { |sample| sample.scan(/(\w+)="/).flatten }.uniq }
    panels = JSON.parse(File.read(DASHBOARD)).fetch("panels").reject { |panel| panel["type"] == "row" }
    asked = panels.flat_map { |panel| panel.fetch("targets") }.map { |target| target.fetch("expr") }
    asked.each do |query|
      by = query.scan(/by \(([^)]*)\)/).flat_map { |names,| names.split(", ") } - %w[instance]
      names = query.scan(/heddle_\w+/)
      refute_empty names, query
      names.each { |name| assert_empty by - labels.fetch(name), query }
    end
    names = asked.flat_map { |query| query.scan(/heddle_\w+/) }.map { |name| name.sub(/_(?:bucket|sum|count)\z/, "") }
    assert_empty types.keys.grep(/\Aheddle_/) - names - %w[heddle_fibers_reused_total]
    assert_equal panels.size, panels.map { |panel| panel["gridPos"].values_at("x", "y") }.uniq.size
  end

  private

  def work = Heddle.run { 5.times.map { Heddle.spawn { sleep(0.001) } }.each(&:wait) }

  # Each line of the text, by the format's description.
  def parsed
    types, help, samples = {}, {}, {}
    Prometheus::Client::Formats::Text.marshal(@registry).each_line(chomp: true) do |line|
      case line
      when /\A# TYPE (#{NAME}) (counter|gauge|histogram)\z/o then types[$1] = $2
      when /\A# HELP (#{NAME}) (.+)\z/o then help[$1] = $2
      when SAMPLE
        sample, value = line.match(/\A(.+) (\S+)\z/).captures
        refute samples.key?(sample), line
        samples[sample] = Float(value)
      else flunk "no line of the format: #{line}"
      end
    end
    [types, help, samples]
  end
end
