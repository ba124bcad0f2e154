# frozen_string_literal: true

Compatibility.library "restforce", kind: "SDKs of services" do
  peer :http
  load { require "restforce" }
  connect { |peer| Restforce.new(oauth_token: "token", instance_url: peer.url) }
  ask { |salesforce, number| salesforce.describe("heddle#{number}").fetch("number") }
end
