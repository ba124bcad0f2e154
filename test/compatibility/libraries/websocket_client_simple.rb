# frozen_string_literal: true

require_relative "../peers/web_socket"
require_relative "../reasons"

Compatibility.library "websocket-client-simple", kind: "RPC and WebSocket" do
  peer Compatibility::Peers::WebSocketEcho
  load { require "websocket-client-simple" }
  connect do |peer|
    opened, messages = Thread::Queue.new, Thread::Queue.new
    client = WebSocket::Client::Simple.connect("ws://#{peer}") do |socket|
      socket.on(:open) { opened << true }
      socket.on(:message) { |message| messages << message.data }
    end
    opened.pop
    [client, messages]
  end
  ask do |(client, messages), number|
    client.send("heddle#{number}")
    messages.pop[/\d+/].to_i
  end
  close { |(client)| client.close }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
