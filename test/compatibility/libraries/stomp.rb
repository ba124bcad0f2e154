# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "stomp", kind: "Message brokers" do
  peer :scripted do |socket|
    while (frame = socket.gets("\0"))
      case frame
      when /\A\s*(CONNECT|STOMP)/ then socket.write("CONNECTED\nversion:1.0\n\n\0\n")
      when /\A\s*SEND/
        socket.write("MESSAGE\ndestination:/queue/x\nmessage-id:1\n\n#{frame[/heddle\d+/] * 40}\0\n")
      end
    end
  end
  load { require "stomp" }
  connect do |peer|
    Stomp::Connection.new(hosts: [{host: peer.host, port: peer.port}], reliable: false)
      .tap { |stomp| stomp.subscribe("/queue/x") }
  end
  ask do |stomp, number|
    stomp.publish("/queue/x", "heddle#{number}")
    stomp.receive.body[/\d+/].to_i
  end
  close(&:disconnect)
  note "On Ruby 4.0 it needs the gem `io-wait`, `< 0.4`."
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
