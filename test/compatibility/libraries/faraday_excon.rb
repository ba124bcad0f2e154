# frozen_string_literal: true

Compatibility.library "faraday, excon", gem: "faraday-excon", kind: "HTTP clients" do
  peer :http
  load do
    require "faraday"
    require "faraday/excon"
  end
  connect { |peer| Faraday.new(peer.url) { |faraday| faraday.adapter(:excon) } }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
end
