# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # A server of DRb, whose object the block makes.
    class DRbObjects < Scripted
      def start
        super
        until answers?
          sleep 0.01
        end
        self
      end

      private

      # DRb makes its own listener, on the port that this one had.
      def listen = super.tap(&:close)

      def serve(_listener)
        require "drb"
        DRb.start_service("druby://#{host}:#{port}", @script.call)
      end

      def answers?
        TCPSocket.open(host, port, &:close)
        true
      rescue Errno::ECONNREFUSED
        false
      end
    end
  end
end
