# frozen_string_literal: true

Compatibility.library "faraday, httpx", gem: "httpx", kind: "HTTP clients" do
  peer :http
  load do
    require "faraday"
    require "httpx/adapters/faraday"
  end
  connect { |peer| Faraday.new(peer.url) { |faraday| faraday.adapter(:httpx) } }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
end
