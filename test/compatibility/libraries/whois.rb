# frozen_string_literal: true

Compatibility.library "whois", kind: "Names and networks" do
  peer(:scripted) { |socket| socket.write("#{socket.gets[/heddle\d+/] * 40}\r\n") }
  load { require "whois" }
  connect { |peer| Whois::Client.new(host: peer.host, port: peer.port, timeout: 30) }
  ask { |whois, number| whois.lookup("heddle#{number}.com").content[/\d+/].to_i }
end
