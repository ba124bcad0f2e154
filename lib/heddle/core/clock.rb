# frozen_string_literal: true

module Heddle
  # The clock for spans of time and deadlines in Ruby code; in C it is `deadline_now`.
  #
  # @api private
  module Clock
    module_function

    # @return [Float] seconds of the monotonic clock
    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
