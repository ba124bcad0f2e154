# frozen_string_literal: true

require "net/http"
require_relative "../heddle"
Heddle::Loading.load_openssl # Net::HTTP's first rescue would do it, for 60 ms in which no task runs
require_relative "net_http/installation"

module Heddle
  # Net::HTTP with less work, for unmodified callers: open-uri, faraday, aws-sdk, net-http-persistent and all other
  # users of Net::HTTP. Requiring this file enables it for all later connections.
  #
  # Answers, errors, encodings and overridable methods stay the same. Where a program has overridden an accelerated
  # method, set `debug_output`, or replaced the socket, stock Net::HTTP does the work, and {stats} counts that. One
  # difference: the block of `read_body` gets all bytes that have arrived, up to 1 MiB at once, while stock gives at
  # most 16 KiB. `enable(segment: 16_384)` restores stock's size.
  module NetHTTP
    SEGMENT = 1 << 20
    private_constant :SEGMENT

    @installations = {}
    @lock = Mutex.new

    class << self
      # Accelerates new connections. Open connections do not change.
      #
      # @param klass [Class] Net::HTTP, a subclass, or a copy such as Gem::Net::HTTP; Net::HTTP includes its subclasses
      # @param segment [Integer] the most bytes that a block of `read_body` gets at once
      # @return [nil]
      # @raise [ArgumentError] when the class is not a Net::HTTP
      def enable(klass = ::Net::HTTP, segment: SEGMENT)
        unless segment.is_a?(Integer) && segment > 0
          raise ArgumentError, "a segment must have at least 1 byte, not #{segment.inspect}"
        end

        @lock.synchronize { installation(klass).enable(segment) }
        nil
      end

      # Restores stock Net::HTTP: new connections are stock's own, and open connections behave as such.
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

      # Counts the steps (a read, a line, a write, a head) that were accelerated, and those that stock did, by reason:
      # `:override` of a method, `:debug_output`, `:io` of an unknown class or closed, `:buffered` by the IO itself,
      # `:arguments` that only stock understands, `:disabled`.
      #
      # Also counts connections while {keep_alive} is on: `opened`, `reused` by a later session, `stale` (found closed
      # by the server, or out of order), `evicted` (closed because of a limit or a clock), `resumed` TLS sessions, and
      # how many are `idle` now.
      #
      # @return [Hash{Symbol => Object}] `{fast: Integer, fallback: {Symbol => Integer}, opened: Integer, …}`
      def stats
        libraries = @lock.synchronize { @installations.values.flat_map(&:libraries) }
        fallback = libraries.map(&:fallbacks).reduce({}) { |all, one| all.merge(one) { |_, a, b| a + b } }
        {fast: libraries.sum(&:fast), fallback: fallback, **KeepAlive.stats}
      end

      # Accelerates one object, whether or not its class is accelerated.
      #
      # @param http [Net::HTTP] started or not
      # @return [Net::HTTP] the same
      def for(http)
        @lock.synchronize { installation(http.class).adopt(http) }
        http
      end

      # Keeps the connections of sessions that end (`finish`, the end of `start { }`, `Net::HTTP.get`) for later
      # sessions to the same place: those need no connect and no TLS handshake. Off unless called. Works for all classes
      # that were ever enabled, and where {disable} has switched the acceleration off, too.
      #
      # A connection goes to another session only if everything that could make two connections different is the same,
      # and if nothing on it was out of order: see guides/keep_alive.md. `http.keep_alive = false` exempts one object.
      #
      # @param on [Boolean] false: switches it off, and closes persistent connections
      # @param idle [Numeric] seconds that a connection may be idle. A server's `Keep-Alive: timeout=` shortens them.
      #   Also the longest that a change of a host's addresses goes unnoticed.
      # @param per_host [Integer] the most idle connections to one host and port
      # @param total [Integer] the most idle connections
      # @yield before each connect, in the thread or task that connects
      # @yieldparam http [Net::HTTP]
      # @yieldreturn [Object] nil or false: this connection is not kept; any other value: only sessions with an equal
      #   value share connections
      # @return [nil]
      # @raise [ArgumentError] when a limit is not positive
      def keep_alive(on = true, idle: 10, per_host: 8, total: 256, &key)
        @lock.synchronize { on ? KeepAlive.start(idle, per_host, total, key) : KeepAlive.stop }
        nil
      end

      # Closes all idle connections, and forgets TLS sessions: after a change of credentials, for example.
      #
      # @return [nil]
      def keep_alive_clear
        KeepAlive.clear
        nil
      end

      # @return [Hash{String => Integer}] how many connections are idle, by host and port
      # @api private
      def idle_connections = KeepAlive.idle_connections

      private

      def installation(klass)
        owner = Installation.owner(klass) or
          raise ArgumentError, "#{klass.inspect} is not a Net::HTTP: no method `connect` of it makes a BufferedIO"
        @installations[owner] ||= Installation.new(owner)
      end
    end

    enable
  end
end
