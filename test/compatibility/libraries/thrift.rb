# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "thrift", kind: "RPC and WebSocket" do
  peer :scripted do |socket|
    require "thrift"
    transport = Thrift::Socket.new.tap { |connected| connected.handle = socket }
    protocol = Thrift::BinaryProtocol.new(Thrift::BufferedTransport.new(transport))
    loop do
      _, _, sequence = protocol.read_message_begin
      text = protocol.read_string
      protocol.read_message_end
      protocol.write_message_begin("echo", Thrift::MessageTypes::REPLY, sequence)
      protocol.write_string(text)
      protocol.write_message_end
      protocol.trans.flush
    rescue Thrift::TransportException
      break # the client has gone
    end
  end
  load { require "thrift" }
  connect do |peer|
    Thrift::BinaryProtocol.new(Thrift::BufferedTransport.new(Thrift::Socket.new(peer.host, peer.port).tap(&:open)))
  end
  ask do |protocol, number|
    protocol.write_message_begin("echo", Thrift::MessageTypes::CALL, number)
    protocol.write_string("heddle#{number}" * 40)
    protocol.write_message_end
    protocol.trans.flush
    protocol.read_message_begin
    protocol.read_string.tap { protocol.read_message_end }[/\d+/].to_i
  end
  close { |protocol| protocol.trans.close }
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
