# frozen_string_literal: true

require_relative "../peers/names"

Compatibility.library "dnsruby", kind: "Names and networks" do
  peer Compatibility::Peers::Names
  load { require "dnsruby" }
  connect do |peer|
    Dnsruby::Resolver.new(nameserver: peer.host, port: peer.port, do_caching: false, dnssec: false,
      packet_timeout: 30, query_timeout: 30)
  end
  ask { |dns, number| Compatibility::Peers::Names.number(dns.query("heddle#{number}.example").answer.first.address) }
end
