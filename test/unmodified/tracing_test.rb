# frozen_string_literal: true

require "test_helper"
require "opentelemetry/sdk"
require "sentry-ruby"
require "heddle"

# The spans and scopes of OpenTelemetry and Sentry in tasks: a task's belong below those of the code that started it,
# and two requests at once do not mix theirs.
class TracingTest < Minitest::Test
  mode :fiber

  def setup
    @exporter = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    provider = OpenTelemetry::SDK::Trace::TracerProvider.new
    provider.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(@exporter))
    @tracer = provider.tracer("test")
    Sentry.init do |config|
      config.dsn = "http://12345:67890@sentry.localdomain/sentry/42"
      config.transport.transport_class = Sentry::DummyTransport
      config.background_worker_threads = 0
      config.sdk_logger = Logger.new(nil) if config.respond_to?(:sdk_logger=)
      config.traces_sample_rate = 1.0
      config.hub_isolation_level = :fiber
    end
  end

  # How code starts other code that belongs to it.
  WAYS = {
    spawn: ->(work) { Heddle.spawn(&work).value },
    pool: ->(work) { Heddle::FiberPool.new(2).then { |pool| pool.map([1], &work).first } },
    map: ->(work) { Heddle.map([1], &work).first },
    offload: ->(work) { Heddle.offload(&work) },
    run: ->(work) { Heddle.run(&work) },
    "spawn in spawn": ->(work) { Heddle.spawn { Heddle.spawn(&work).value }.value }
  }.freeze

  def test_a_span_of_opentelemetry_is_the_parent_of_those_in_its_tasks
    Heddle.run do
      requests = Array.new(2) do |number|
        Heddle.spawn do
          @tracer.in_span("request #{number}") do
            sleep(0.01)
            WAYS.each do |name, way|
              way.call(->(*) { @tracer.in_span("#{name} #{number}") { sleep(0.005) } })
            end
          end
        end
      end
      requests.each(&:value)
    end
    spans = @exporter.finished_spans.to_h { |span| [span.name, span] }
    2.times do |number|
      request = spans.fetch("request #{number}")
      assert_equal OpenTelemetry::Trace::INVALID_SPAN_ID, request.parent_span_id
      WAYS.each_key { |name| assert_equal request.span_id, spans.fetch("#{name} #{number}").parent_span_id, name }
    end
  end

  def test_a_run_of_a_plain_thread_continues_its_span
    @tracer.in_span("thread") { Heddle.run { @tracer.in_span("run") { Heddle.spawn { @tracer.in_span("task") {} } } } }
    spans = @exporter.finished_spans.to_h { |span| [span.name, span] }
    assert_equal spans["thread"].span_id, spans["run"].parent_span_id
    assert_equal spans["run"].span_id, spans["task"].parent_span_id
    assert_same OpenTelemetry::Context::ROOT, OpenTelemetry::Context.current
  end

  # As its middleware for Rack does.
  def test_a_scope_of_sentry_is_that_of_the_tasks_of_its_request
    skip "Sentry keeps its hub by thread where fibers have no storage" if RUBY_VERSION < "3.2"
    Heddle.run do
      requests = Array.new(2) do |number|
        Heddle.spawn do
          Sentry.clone_hub_to_current_thread
          Sentry.set_tags(request: number.to_s)
          transaction = Sentry.start_transaction(name: "request #{number}", op: "test")
          Sentry.get_current_scope.set_span(transaction)
          sleep(0.01)
          WAYS.each do |name, way|
            way.call(lambda do |*|
              sleep(0.005)
              Sentry.with_child_span(op: "#{name} #{number}") do |span|
                assert_same transaction, Sentry.get_current_hub.current_scope.get_transaction, name
                assert_equal transaction.span_id, span.parent_span_id, name
              end
              Sentry.capture_message("#{name} #{number}")
            end)
          end
          Heddle.spawn { Sentry.set_tags(request: "a task's own") }.value
          assert_equal({request: number.to_s}, Sentry.get_current_scope.tags)
        end
      end
      requests.each(&:value)
    end
    tags = Sentry.get_current_client.transport.events.select { |event| event.respond_to?(:message) && event.message }
      .to_h { |event| [event.message, event.tags[:request]] }
    2.times { |number| WAYS.each_key { |name| assert_equal number.to_s, tags["#{name} #{number}"], name } }
    assert_empty Sentry.get_current_scope.tags
  end
end
