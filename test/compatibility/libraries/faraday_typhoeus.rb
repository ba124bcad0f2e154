# frozen_string_literal: true

Compatibility.library "faraday, typhoeus", gem: "faraday-typhoeus", kind: "HTTP clients" do
  peer :http
  load do
    require "faraday"
    require "faraday/typhoeus"
  end
  connect { |peer| Faraday.new(peer.url) { |faraday| faraday.adapter(:typhoeus) } }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
  because :at_once, :tasks, :threads, :cancel,
    "It waits in C, and lets neither tasks nor deadlines in " \
    "([ethon #211](https://github.com/typhoeus/ethon/issues/211)): call it in `Heddle.offload`."
end
