# frozen_string_literal: true

Compatibility.library "mailgun-ruby", kind: "SDKs of services" do
  peer :http
  load { require "mailgun-ruby" }
  connect { |peer| Mailgun::Client.new("key", peer.to_s, "v3", false) }
  ask { |mailgun, number| mailgun.get("heddle#{number}").to_h.fetch("number") }
end
