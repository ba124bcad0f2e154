# frozen_string_literal: true

require_relative "../peers/mosquitto"
require_relative "../reasons"

Compatibility.library "mqtt", kind: "Message brokers" do
  peer Compatibility::Peers::Mosquitto
  load { require "mqtt" }
  connect do |peer|
    # Its reading thread raises in the thread that connected, wherever that is, when the connection ends.
    Thread.new do
      MQTT::Client.connect(host: peer.host, port: peer.port).tap { |mqtt| mqtt.subscribe("answers/#{mqtt.object_id}") }
    end.value
  end
  ask do |mqtt, number|
    mqtt.publish("answers/#{mqtt.object_id}", "heddle#{number}" * 40)
    mqtt.get.last[/\d+/].to_i
  end
  close(&:disconnect)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
