# frozen_string_literal: true

require_relative "map" # brings runs and pools; the whole of Heddle may be about to be loaded
require_relative "core/required_gem"
Heddle::RequiredGem.load("datadog", "heddle/datadog", "datadog, 2.0 or later")
require_relative "core/inheritance"

module Heddle
  # Datadog keeps its active trace by fiber. Tasks, the blocks of {Heddle.offload} and those of {Heddle.run} continue
  # the trace of the code that starts them: the span that is active there is the parent of theirs. Heddle loads this
  # itself where Datadog was loaded first.
  module DatadogSupport
    class << self
      # @api private
      # @return [Proc] the block, in a continuation of the trace of the code that calls this
      def inherited(block)
        digest = ::Datadog::Tracing.active_trace&.to_digest
        return block unless digest

        proc { |*arguments| ::Datadog::Tracing.continue_trace!(digest) { block.call(*arguments) } }
      end

      alias_method :continued, :inherited
      alias_method :offloaded, :inherited
    end

    Inheritance.add(self)
  end
end
