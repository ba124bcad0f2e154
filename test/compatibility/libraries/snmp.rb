# frozen_string_literal: true

Compatibility.library "snmp", kind: "Names and networks" do
  peer :datagrams do |message|
    require "snmp"
    request = SNMP::Message.decode(message)
    response = request.response
    response.pdu.varbind_list.each { |variable| variable.value = SNMP::Integer.new(variable.name.last) }
    response.encode
  end
  load { require "snmp" }
  connect { |peer| SNMP::Manager.new(host: peer.host, port: peer.port, timeout: 30, retries: 0) }
  ask { |snmp, number| snmp.get_value("1.3.6.1.4.1.#{number}").to_i }
  close(&:close)
end
