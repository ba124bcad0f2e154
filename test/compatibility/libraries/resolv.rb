# frozen_string_literal: true

require_relative "../peers/names"

Compatibility.library "resolv", kind: "Names and networks" do
  peer Compatibility::Peers::Names
  load { require "resolv" }
  connect do |peer|
    Resolv::DNS.new(nameserver_port: [[peer.host, peer.port]], search: [], ndots: 1)
  end
  ask { |dns, number| Compatibility::Peers::Names.number(dns.getaddress("heddle#{number}.example")) }
  close(&:close)
end
