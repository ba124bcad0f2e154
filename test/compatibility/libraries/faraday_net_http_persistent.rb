# frozen_string_literal: true

Compatibility.library "faraday, net_http_persistent", gem: "faraday-net_http_persistent", kind: "HTTP clients" do
  peer :http
  load do
    require "faraday"
    require "faraday/net_http_persistent"
  end
  connect { |peer| Faraday.new(peer.url) { |faraday| faraday.adapter(:net_http_persistent) } }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
end
