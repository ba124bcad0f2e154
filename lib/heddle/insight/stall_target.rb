# frozen_string_literal: true

module Heddle
  # Where reports go.
  module StallTarget
    LEAST = 0.01

    class << self
      # @return [Float] the limit, in seconds
      # @raise [ArgumentError]
      def limit(seconds)
        unless seconds.is_a?(Numeric) && seconds.real? && seconds >= LEAST && seconds < Float::INFINITY
          raise ArgumentError, "the limit must be at least #{LEAST} seconds, got #{seconds.inspect}: the kernel's " \
            "clock that the loop reads has ticks of some milliseconds"
        end

        seconds.to_f
      end

      # @return [#call] gets each {Stall}
      # @raise [ArgumentError]
      def of(target)
        return target if target.respond_to?(:call)
        return notifications if target.respond_to?(:publish_event)
        return ->(stall) { target.warn("heddle: a stall of #{stall}") } if target.respond_to?(:warn)
        return ->(stall) { target.write("heddle: a stall of #{stall}\n") } if target.respond_to?(:write)

        raise ArgumentError, "cannot report stalls to #{target.class}: pass something callable, a Logger, an IO or " \
          "ActiveSupport::Notifications"
      end

      private

      def notifications
        require_relative "../notifications/event"
        ->(stall) { Notifications::Event.publish("stall.heddle", stall.ended_at.to_f, stall.seconds, stall: stall) }
      end
    end
  end
  private_constant :StallTarget
end
