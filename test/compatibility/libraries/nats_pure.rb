# frozen_string_literal: true

require_relative "../peers/nats"

Compatibility.library "nats-pure", kind: "Message brokers" do
  peer Compatibility::Peers::NATS
  load { require "nats/client" }
  connect do |peer|
    NATS.connect("nats://#{peer}")
      .tap { |nats| nats.subscribe("echo.#{nats.object_id}") { |message| message.respond(message.data) } }
  end
  ask { |nats, number| nats.request("echo.#{nats.object_id}", "heddle#{number}" * 40, timeout: 30).data[/\d+/].to_i }
  close(&:close)
end
