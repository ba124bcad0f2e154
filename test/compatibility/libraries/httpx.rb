# frozen_string_literal: true

Compatibility.library "httpx", kind: "HTTP clients" do
  peer :http
  load do
    require "set" # which older Rubies do not load by themselves
    require "httpx"
  end
  connect { |peer| HTTPX.plugin(:persistent).with(origin: peer.url) }
  ask { |http, number| http.get("/heddle#{number}").raise_for_status.json.fetch("number") }
  close(&:close)
end
