# frozen_string_literal: true

require_relative "../peers/kafka"

Compatibility.library "ruby-kafka", kind: "Message brokers" do
  peer Compatibility::Peers::Kafka
  load { require "kafka" }
  connect { |peer| Kafka.new([peer.to_s], client_id: peer.to_s, socket_timeout: 30) }
  ask { |kafka, number| kafka.last_offset_for("heddle#{number}", 0) + 1 }
  close(&:close)
end
