# frozen_string_literal: true

Compatibility.library "excon", kind: "HTTP clients" do
  peer :http
  load { require "excon" }
  connect { |peer| Excon.new(peer.url, persistent: true) }
  ask { |http, number| JSON.parse(http.get(path: "/heddle#{number}").body).fetch("number") }
  close(&:reset)
end
