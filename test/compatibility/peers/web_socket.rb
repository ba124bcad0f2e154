# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # Sends each message of a WebSocket back, some times.
    class WebSocketEcho < Scripted
      Wire = Struct.new(:socket) do
        def write(bytes) = socket.write(bytes)
      end
      private_constant :Wire

      private

      def play(socket)
        require "websocket/driver"
        driver = WebSocket::Driver.server(Wire.new(socket))
        driver.on(:connect) { driver.start }
        driver.on(:message) { |message| driver.text(message.data * 40) }
        loop { driver.parse(socket.readpartial(4096)) }
      end
    end
  end
end
