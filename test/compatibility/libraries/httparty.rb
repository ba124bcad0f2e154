# frozen_string_literal: true

Compatibility.library "httparty", kind: "HTTP clients" do
  peer :http
  load { require "httparty" }
  connect(&:url)
  ask { |url, number| HTTParty.get("#{url}/heddle#{number}").parsed_response.fetch("number") }
end
