# frozen_string_literal: true

module Heddle
  class Simulation
    # How bytes travel between the code under test and a host.
    class Link
      # Seconds after which TCP sends a lost segment again, doubled each time (RFC 6298), and after which it gives up.
      FIRST_RETRY = 0.2
      LONGEST_RETRY = 120.0
      RETRIES = 15
      private_constant :FIRST_RETRY, :LONGEST_RETRY, :RETRIES

      # @param latency [Numeric, Range] seconds, one way
      # @param loss [Float] probability that a segment is lost, and comes later
      # @param reset [Float] probability that a segment ends the connection for both sides
      # @param stall [Float] probability that from a segment on nothing passes any more, in this direction
      # @param bandwidth [Numeric, nil] bytes a second, in each direction of each connection
      # @raise [ArgumentError, TypeError]
      def initialize(latency: 0.0005, loss: 0, reset: 0, stall: 0, bandwidth: nil)
        @latency = seconds(latency)
        @loss = Check.probability("loss", loss)
        @reset = Check.probability("reset", reset)
        @stall = Check.probability("stall", stall)
        @bandwidth = rate(bandwidth)
      end

      # @param faults [Faults::Of] of what sends the segment
      # @return [Integer] nanoseconds until a segment arrives that leaves now; nil if it never does
      def delay(faults)
        lost = losses(faults)
        latency(faults.random) + retried(lost) if lost <= RETRIES
      end

      # @param faults [Faults::Of] of what sends the datagram
      # @return [Integer] nanoseconds until it arrives; nil if it is lost
      def delay_of_datagram(bytes, faults)
        latency(faults.random) + occupied(bytes) unless faults.happens?(@loss, "lost")
      end

      # @return [Integer] nanoseconds for which the bytes occupy the link
      def occupied(bytes) = @bandwidth ? (bytes * 1e9 / @bandwidth).ceil : 0

      # @param faults [Faults::Of]
      # @return [Symbol, nil] :reset or :stall
      def fate(faults)
        return :reset if faults.happens?(@reset, "reset")

        :stall if faults.happens?(@stall, "stalls")
      end

      private

      def latency(random)
        (((@latency.is_a?(Range) ? random.rand(@latency) : @latency)) * 1e9).round
      end

      def losses(faults)
        count = 0
        count += 1 while count <= RETRIES && faults.happens?(@loss, count.zero? ? "lost" : "lost again (#{count})")
        count
      end

      def retried(count)
        (Array.new(count) { |try| [FIRST_RETRY * (2**try), LONGEST_RETRY].min }.sum * 1e9).round
      end

      def seconds(latency)
        range = latency.is_a?(Range) ? latency : (latency..latency)
        ends = [range.begin, range.end]
        raise TypeError, "a latency must be seconds, not #{latency.inspect}" unless ends.all?(Numeric)
        return latency.is_a?(Range) ? (range.begin.to_f..range.end.to_f) : latency if ends.min >= 0 && ends == ends.sort

        raise ArgumentError, "a latency must not be negative: got #{latency.inspect}"
      end

      def rate(bytes)
        return bytes if bytes.nil? || (bytes.is_a?(Numeric) && bytes.positive?)

        raise ArgumentError, "a bandwidth must be bytes a second, not #{bytes.inspect}"
      end
    end
  end
end
