# frozen_string_literal: true

require "support/servers"

module Compatibility
  module Peers
    # A cluster of Redis with one node.
    class RedisCluster < Servers::Redis
      def start
        super
        call("CLUSTER ADDSLOTSRANGE 0 16383")
        until call("CLUSTER INFO").include?("cluster_state:ok")
          sleep 0.02
        end
        self
      end

      # @param port [Integer] where its node tells clients to find it: a proxy, say
      def announce(port) = call("CONFIG SET cluster-announce-port #{port}")

      private

      def command = super + ["--cluster-enabled", "yes", "--cluster-announce-ip", host]

      def call(line)
        TCPSocket.open(host, port) do |socket|
          socket.write("#{line}\r\n")
          socket.readpartial(4096)
        end
      end
    end
  end
end
