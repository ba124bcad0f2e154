# frozen_string_literal: true

Compatibility.library "rest-client", kind: "HTTP clients" do
  peer :http
  load { require "rest-client" }
  connect(&:url)
  ask { |url, number| JSON.parse(RestClient.get("#{url}/heddle#{number}").body).fetch("number") }
end
