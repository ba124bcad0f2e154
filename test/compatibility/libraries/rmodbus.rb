# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "rmodbus", kind: "Names and networks" do
  peer :scripted do |socket|
    while (request = socket.read(12))
      transaction, register = request.unpack("n@8n")
      socket.write([transaction, 0, 5, 1, 3, 2, register].pack("nnnCCCn"))
    end
  end
  load { require "rmodbus" }
  connect { |peer| ModBus::TCPClient.connect(peer.host, peer.port) }
  ask do |client, number|
    slave = client.with_slave(1)
    slave.read_retry_timeout = 30
    slave.read_holding_registers(number, 1).first
  end
  close(&:close)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
