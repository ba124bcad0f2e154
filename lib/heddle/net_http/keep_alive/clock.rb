# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # `Connection#jumped?` tells whether the machine was suspended, or its clock set, since a connection began to
      # rest. Servers and routers have then forgotten connections that look alive here. It compares the clock that stops
      # during a suspend with the one that goes on, and with the time of day: the differences stay the same unless one
      # jumps.
      module Clock
        class << self
          # @return [Float] monotonic seconds
          def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end
      end
      private_constant :Clock
    end
  end
end
