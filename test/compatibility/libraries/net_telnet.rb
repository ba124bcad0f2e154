# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "net-telnet", kind: "Shells, files and directories" do
  peer :scripted do |socket|
    socket.write("$ ")
    while (line = socket.gets)
      socket.write("#{line.chomp * 40}\r\n$ ")
    end
  end
  load { require "net/telnet" }
  connect do |peer|
    Net::Telnet.new("Host" => peer.host, "Port" => peer.port, "Timeout" => 30).tap { |telnet| telnet.waitfor(/\$ \z/) }
  end
  ask { |telnet, number| telnet.cmd("heddle#{number}")[/\d+/].to_i }
  close(&:close)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
