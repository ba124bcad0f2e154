# frozen_string_literal: true

require "net/http"
require_relative "scheduler"
require_relative "net_http/installation"

module Heddle
  # Net::HTTP with less work, under callers that do not know of it: open-uri, faraday, aws-sdk, net-http-persistent and whatever
  # else sits on Net::HTTP. Requiring this file switches it on for all connections made from then on.
  #
  # Answers, errors, encodings and what may be overridden stay as they were; where a program has overridden what would be
  # done faster, asked for `debug_output`, or put a socket of its own in place, stock does the work, and {stats} says so.
  # One thing is different: the block of `read_body` is given what has arrived, up to 1 MiB at once, where stock stops
  # at 16 KiB. `enable(segment: 16_384)` has it as in stock.
  module NetHTTP
    SEGMENT = 1 << 20
    private_constant :SEGMENT

    @installations = {}
    @lock = Mutex.new

    class << self
      # Switches it on. Connections that are open already stay as they are.
      #
      # @param klass [Class] Net::HTTP, a subclass, or a copy of it such as Gem::Net::HTTP; with Net::HTTP its subclasses are meant, too
      # @param segment [Integer] bytes that a block of `read_body` is given at once at most
      # @return [nil]
      # @raise [ArgumentError] for a class that is no Net::HTTP
      def enable(klass = ::Net::HTTP, segment: SEGMENT)
        raise ArgumentError, "a segment must be of 1 byte at least: got #{segment.inspect}" unless segment.is_a?(Integer) && segment > 0

        @lock.synchronize { installation(klass).enable(segment) }
        nil
      end

      # Switches it off: new connections are stock's own, and open ones behave as such.
      #
      # @param klass [Class] as for {enable}
      # @return [nil]
      def disable(klass = ::Net::HTTP)
        @lock.synchronize { installation(klass).disable }
        nil
      end

      # @param klass [Class] as for {enable}
      # @return [Boolean]
      def enabled?(klass = ::Net::HTTP)
        @lock.synchronize { installation(klass).enabled? }
      end

      # How many steps (a read, a line, a write, a head) were done fast, and how many stock did, by reason: `:override` of a
      # method, `:debug_output`, `:io` of an unknown class or closed, `:buffered` by the IO itself, `:arguments` that only stock
      # can judge, `:disabled`.
      #
      # @return [Hash{Symbol => Object}] `{fast: Integer, fallback: {Symbol => Integer}}`
      def stats
        libraries = @lock.synchronize { @installations.values.flat_map(&:libraries) }
        fallback = libraries.map(&:fallbacks).reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
        {fast: libraries.sum(&:fast), fallback: fallback}
      end

      # Has one object work fast, whether or not it is switched on for all.
      #
      # @param http [Net::HTTP] started or not
      # @return [Net::HTTP] the same
      def for(http)
        @lock.synchronize { installation(http.class).adopt(http) }
        http
      end

      private

      def installation(klass)
        owner = Installation.owner(klass) or raise ArgumentError, "#{klass.inspect} is no Net::HTTP: it has no method `connect` that makes a BufferedIO"
        @installations[owner] ||= Installation.new(owner)
      end
    end

    enable
  end
end
