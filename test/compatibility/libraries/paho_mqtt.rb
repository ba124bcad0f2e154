# frozen_string_literal: true

require_relative "../peers/mosquitto"
require_relative "../reasons"

Compatibility.library "paho-mqtt", kind: "Message brokers" do
  peer Compatibility::Peers::Mosquitto
  load { require "paho-mqtt" }
  connect do |peer|
    client = PahoMqtt::Client.new(host: peer.host, port: peer.port, ssl: false)
    messages = Thread::Queue.new
    client.on_message = ->(message) { messages << message.payload }
    client.connect
    client.subscribe([client.client_id, 0])
    [client, messages]
  end
  ask do |(client, messages), number|
    client.publish(client.client_id, "heddle#{number}" * 40)
    messages.pop[/\d+/].to_i
  end
  close { |(client)| client.disconnect }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
