# frozen_string_literal: true

Compatibility.library "net/http with heddle/net_http", gem: "net-http", kind: "HTTP clients" do
  peer :http
  load { require "heddle/net_http" }
  connect { |peer| Net::HTTP.start(peer.host, peer.port) }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
  close(&:finish)
end
