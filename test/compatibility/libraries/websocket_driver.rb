# frozen_string_literal: true

require_relative "../peers/web_socket"
require_relative "../reasons"

Compatibility.library "websocket-driver", kind: "RPC and WebSocket" do
  peer Compatibility::Peers::WebSocketEcho
  load { require "websocket/driver" }
  connect do |peer|
    socket = TCPSocket.new(peer.host, peer.port)
    wire = Struct.new(:url, :socket) { def write(bytes) = socket.write(bytes) }
    driver = WebSocket::Driver.client(wire.new("ws://#{peer}/", socket))
    messages = []
    driver.on(:message) { |message| messages << message.data }
    driver.start
    driver.parse(socket.readpartial(4096)) until driver.state == :open
    [driver, socket, messages]
  end
  ask do |(driver, socket, messages), number|
    driver.text("heddle#{number}")
    driver.parse(socket.readpartial(4096)) while messages.empty?
    messages.shift[/\d+/].to_i
  end
  close { |(_, socket)| socket.close }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
