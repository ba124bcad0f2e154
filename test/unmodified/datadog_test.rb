# frozen_string_literal: true

require "test_helper"
begin
  require "datadog"
rescue LoadError
  nil # it has compiled code, which does not exist for all systems
end
require "heddle"

# The spans of Datadog in tasks: a task's belong below those of the code that started it, and two requests at once do
# not mix theirs.
class DatadogTest < Minitest::Test
  mode :fiber

  # What the tracer would send to its agent.
  class Writer
    attr_reader :spans

    def initialize = @spans = []

    def write(trace) = @spans.concat(trace.spans)

    def stop = true
  end

  WAYS = {
    spawn: ->(work) { Heddle.spawn(&work).value },
    pool: ->(work) { Heddle::FiberPool.new(2).then { |pool| pool.map([1], &work).first } },
    map: ->(work) { Heddle.map([1], &work).first },
    offload: ->(work) { Heddle.offload(&work) },
    run: ->(work) { Heddle.run(&work) },
    "spawn in spawn": ->(work) { Heddle.spawn { Heddle.spawn(&work).value }.value }
  }.freeze

  def setup
    skip "the gem datadog is not there" unless defined?(Datadog::Tracing)
    @writer = writer = Writer.new
    Datadog.configure do |config|
      config.logger.level = Logger::FATAL
      config.tracing.writer = writer
      config.telemetry.enabled = false
      config.remote.enabled = false
      config.runtime_metrics.enabled = false
    end
  end

  def teardown
    Datadog.shutdown! if defined?(Datadog::Tracing)
  end

  def test_a_span_is_the_parent_of_those_in_its_tasks
    Heddle.run do
      requests = Array.new(2) do |number|
        Heddle.spawn do
          Datadog::Tracing.trace("request #{number}") do
            sleep(0.01)
            WAYS.each do |name, way|
              way.call(->(*) { Datadog::Tracing.trace("#{name} #{number}") { sleep(0.005) } })
            end
          end
        end
      end
      requests.each(&:value)
    end
    spans = @writer.spans.to_h { |span| [span.name, span] }
    2.times do |number|
      request = spans.fetch("request #{number}")
      assert_equal 0, request.parent_id
      WAYS.each_key do |name|
        span = spans.fetch("#{name} #{number}")
        assert_equal [request.trace_id, request.id], [span.trace_id, span.parent_id], name
      end
    end
    assert_nil Datadog::Tracing.active_trace
  end

  def test_a_task_outlives_its_span
    task = Heddle.run do
      started = nil
      Datadog::Tracing.trace("request") do
        started = Heddle.spawn { sleep(0.005) && Datadog::Tracing.trace("later") { 7 } }
      end
      started.tap(&:wait)
    end
    assert_equal 7, task.value
    spans = @writer.spans.to_h { |span| [span.name, span] }
    assert_equal spans["request"].id, spans["later"].parent_id
  end
end
