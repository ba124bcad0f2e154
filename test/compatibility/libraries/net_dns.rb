# frozen_string_literal: true

require_relative "../peers/names"

Compatibility.library "net-dns", kind: "Names and networks" do
  peer Compatibility::Peers::Names
  load do
    require "net/dns"
    require "logger"
  end
  connect do |peer|
    Net::DNS::Resolver.new(nameservers: peer.host, port: peer.port, udp_timeout: 30, config_file: File::NULL)
  end
  ask { |dns, number| Compatibility::Peers::Names.number(dns.query("heddle#{number}.example").answer.first.address) }
end
