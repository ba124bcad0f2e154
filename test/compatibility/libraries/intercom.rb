# frozen_string_literal: true

Compatibility.library "intercom", kind: "SDKs of services" do
  peer(:http) { |request| {type: "contact", id: request.number.to_s} }
  load { require "intercom" }
  connect { |peer| Intercom::Client.new(token: "token", base_url: peer.url) }
  ask { |intercom, number| intercom.contacts.find(id: "heddle#{number}").id.to_i }
end
