# frozen_string_literal: true

module Heddle
  # Support for libraries that identify things by their fiber. Loaded only beside the library: when heddle is loaded,
  # or, for libraries that are loaded later, when the first loop starts.
  #
  # @api private
  module Integrations
    # What is loaded may start a loop itself: each is noted before.
    def self.load
      if !@active_record && defined?(::ActiveSupport)
        @active_record = true
        require_relative "../active_record"
      end
      if !@opentelemetry && Object.const_defined?("OpenTelemetry::Context")
        @opentelemetry = true
        require_relative "../opentelemetry"
      end
      if !@datadog && Object.const_defined?("Datadog::Tracing")
        @datadog = true
        require_relative "../datadog"
      end
    end
  end
  private_constant :Integrations
end
