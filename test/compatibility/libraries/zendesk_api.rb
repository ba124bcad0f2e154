# frozen_string_literal: true

Compatibility.library "zendesk_api", kind: "SDKs of services" do
  peer(:http) { |request| {ticket: {id: request.number}} }
  load { require "zendesk_api" }
  connect do |peer|
    ZendeskAPI::Client.new do |config|
      config.url = "#{peer.url}/api/v2"
      config.allow_http = true
      config.access_token = "token"
    end
  end
  ask { |zendesk, number| zendesk.tickets.find!(id: "heddle#{number}").id }
end
