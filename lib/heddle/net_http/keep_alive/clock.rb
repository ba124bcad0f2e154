# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Tells whether the machine was suspended, or its clock set, since a moment. Servers and routers have then
      # forgotten connections that look alive here.
      module Clock
        # Seconds by which two clocks may drift apart before that counts as a jump.
        JUMP = 1.0
        BOOT = Process.const_defined?(:CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC
        private_constant :JUMP, :BOOT

        class << self
          # @return [Float] monotonic seconds
          def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

          # Compares the clock that stops during a suspend with the one that goes on, and with the time of day.
          #
          # @return [Array(Float, Float)] seconds: the differences, which stay the same unless something jumps
          def offsets(now) = [time(BOOT) - now, time(Process::CLOCK_REALTIME) - now]

          # @return [Boolean] whether a clock has jumped between two results of {offsets}
          def jumped?(before, after)
            (after[0] - before[0]).abs > JUMP || (after[1] - before[1]).abs > JUMP
          end

          private

          def time(clock) = Process.clock_gettime(clock)
        end
      end
      private_constant :Clock
    end
  end
end
