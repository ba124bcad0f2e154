# frozen_string_literal: true

require "delegate"
require "heddle/lab"

module Compatibility
  # What stands between a library and its peer, and disturbs answers: the lab's proxy. A peer of datagrams disturbs its
  # answers itself.
  module Between
    # How a peer falls silent: before the answer, in the middle of it; or it sends a byte each tenth of a second.
    FAULTS = %i[silent stalled dripping].freeze
    DRIP = 0.1

    def self.new(peer) = (peer.respond_to?(:datagrams?) ? Datagrams : Streams).new(peer)

    # A proxy before a server of streams.
    class Streams
      include Heddle::Clock

      # Seconds before the limit, from which on the proxy counts as ended: it may end at any moment.
      MARGIN = 0.1
      private_constant :MARGIN

      # @return [Peers::Address] for clients
      attr_reader :address

      def initialize(peer)
        @proxy = Heddle::Lab::ShapingProxy.start("#{peer.host}:#{peer.port}")
        @address = Peers::Address.new(peer, @proxy.host, @proxy.port)
      end

      def faults = FAULTS

      def late(seconds) = @proxy.shape(delay: seconds)

      # Disturbs the answers from now on.
      #
      # @yield makes a request, whose answer is not disturbed: its length tells where the middle is
      def break_off(fault)
        before = reply_bytes
        yield
        middle = (reply_bytes - before) / 2
        raise "the library does not wait for an answer" if middle.zero?

        @proxy.shape(**{silent: {stall_at: 0}, stalled: {stall_at: middle}, dripping: {drip: DRIP}}.fetch(fault))
      end

      def pass = @proxy.pass

      # @return [Integer] how many were made so far
      def connections = @proxy.stats.fetch("connections")

      # Ends the proxy if the block takes longer: a library may hold the GVL until its connection ends.
      def for_seconds(limit)
        killer = Process.spawn("sh", "-c", "sleep #{limit}; kill -KILL #{@proxy.pid}", pgroup: true)
        ends = now + limit - MARGIN
        yield
      ensure
        @cut = now > ends
        Process.kill(:KILL, -killer)
        Process.wait(killer)
      end

      # @return [Boolean] whether the block took longer
      def cut? = @cut

      def stop = @proxy.stop

      private

      def reply_bytes = @proxy.stats.fetch("reply_bytes")
    end

    # A server of datagrams, without a proxy: it has no connections, and no half of an answer.
    class Datagrams
      attr_reader :address

      def initialize(peer)
        @peer = peer
        @address = Peers::Address.new(peer, peer.host, peer.port)
        pass
      end

      def faults = %i[silent]

      def late(seconds) = @peer.shape(seconds.to_s)

      def break_off(_fault)
        yield
        @peer.shape("silent")
      end

      def pass = @peer.shape("0")

      def connections = 0

      # The peer answers after the limit, in which nothing else would end a library that holds the GVL.
      def for_seconds(_limit) = yield

      def cut? = false

      def stop = pass
    end
  end
end
