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

      alias_method :continued, :inherited
      alias_method :offloaded, :inherited
    end

    Inheritance.add(self)
  end
end
