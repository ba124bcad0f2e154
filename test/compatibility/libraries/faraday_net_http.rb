# frozen_string_literal: true

Compatibility.library "faraday, net_http", gem: "faraday", kind: "HTTP clients" do
  peer :http
  load { require "faraday" }
  connect { |peer| Faraday.new(peer.url) { |faraday| faraday.adapter(:net_http) } }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
end
