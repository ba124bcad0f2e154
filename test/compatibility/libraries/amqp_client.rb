# frozen_string_literal: true

require_relative "../peers/amqp"
require_relative "../reasons"

Compatibility.library "amqp-client", kind: "Message brokers" do
  peer Compatibility::Peers::AMQP
  load { require "amqp-client" }
  connect { |peer| AMQP::Client.new("amqp://#{peer}", heartbeat: 0).connect.channel }
  ask { |channel, number| channel.basic_get("heddle#{number}").body[/\d+/].to_i }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
