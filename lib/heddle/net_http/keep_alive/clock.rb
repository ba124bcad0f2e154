# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Tells whether the machine was suspended, or its clock set, since a moment. Servers and routers have then
      # forgotten connections that look alive here.
      module Clock
        class << self
          # @return [Float] monotonic seconds
          def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

          # Compares the clock that stops during a suspend with the one that goes on, and with the time of day: the
          # differences stay the same unless something jumps.
          #
          # @param before [Array(Float, Float)] the differences in seconds, see {Connection#offsets}
          # @return [Boolean] whether a clock has jumped since
          def jumped?(before, now) = Library.jumped?(before, now)
        end
      end
      private_constant :Clock
    end
  end
end
