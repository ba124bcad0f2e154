# frozen_string_literal: true

Compatibility.library "net-ntp", kind: "Names and networks" do
  peer(:datagrams) { |message| [0x1c].pack("C") + message.byteslice(1, 47) }
  load { require "net/ntp" }
  connect { |peer| peer }
  ask { |peer, number| Net::NTP.get(peer.host, peer.port, 30).mode && number } # its request has no room for a number
end
