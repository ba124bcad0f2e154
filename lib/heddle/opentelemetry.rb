# frozen_string_literal: true

require_relative "map" # brings runs and pools; the whole of Heddle may be about to be loaded
require_relative "core/required_gem"
Heddle::RequiredGem.load("opentelemetry", "heddle/opentelemetry", "opentelemetry-api")
require_relative "core/inheritance"

module Heddle
  # OpenTelemetry keeps its context by fiber. Tasks, the blocks of {Heddle.offload} and those of {Heddle.run} begin with
  # the context of the code that starts them: a span that is current there is the parent of theirs. Heddle loads this
  # itself where OpenTelemetry was loaded first.
  module OpenTelemetrySupport
    class << self
      # @api private
      # @return [Proc] the block, within the context of the code that calls this
      def inherited(block)
        context = ::OpenTelemetry::Context.current
        return block if context.equal?(::OpenTelemetry::Context::ROOT)

        proc { |*arguments| ::OpenTelemetry::Context.with_current(context) { block.call(*arguments) } }
      end

      # Hands the numbers of {Heddle.metrics} to the readers of a provider, also to those that it gets later, each time
      # that they collect. Has Heddle measure times ({Heddle.measure_times=}). Call it once
      # `OpenTelemetry::SDK.configure` is over; calling it again is harmless.
      #
      #   require "heddle/opentelemetry"
      #   Heddle::OpenTelemetrySupport.export_metrics
      #
      # @param provider [OpenTelemetry::SDK::Metrics::MeterProvider]
      # @return [nil]
      # @raise [LoadError] without the gem opentelemetry-metrics-sdk
      # @raise [ArgumentError] for a provider without readers
      def export_metrics(provider = nil)
        RequiredGem.load("opentelemetry-metrics-sdk", "heddle/opentelemetry", "opentelemetry-metrics-sdk")
        require_relative "opentelemetry/metrics"
        Metrics.export(provider || ::OpenTelemetry.meter_provider)
        nil
      end

      alias_method :continued, :inherited
      alias_method :offloaded, :inherited
    end

    Inheritance.add(self)
  end
end
