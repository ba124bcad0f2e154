# frozen_string_literal: true

Compatibility.library "sendgrid-ruby", kind: "SDKs of services" do
  peer :http
  load { require "sendgrid-ruby" }
  connect { |peer| SendGrid::API.new(api_key: "key", host: peer.url) }
  ask { |sendgrid, number| JSON.parse(sendgrid.client.stats._("heddle#{number}").get.body).fetch("number") }
end
