# frozen_string_literal: true

Compatibility.library "http", kind: "HTTP clients" do
  peer :http
  load { require "http" }
  connect { |peer| HTTP.persistent(peer.url) }
  ask { |http, number| http.get("/heddle#{number}").parse.fetch("number") }
  close(&:close)
end
