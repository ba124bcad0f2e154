# frozen_string_literal: true

require_relative "../peers/amqp"
require_relative "../reasons"

Compatibility.library "bunny", kind: "Message brokers" do
  peer Compatibility::Peers::AMQP
  load { require "bunny" }
  connect do |peer|
    Bunny.new(host: peer.host, port: peer.port, heartbeat: 0, continuation_timeout: 30_000, log_level: :fatal)
      .start.create_channel
  end
  ask { |channel, number| channel.basic_get("heddle#{number}").last[/\d+/].to_i }
  close { |channel| channel.connection.close(false) }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
