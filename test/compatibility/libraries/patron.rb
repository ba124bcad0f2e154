# frozen_string_literal: true

Compatibility.library "patron", kind: "HTTP clients" do
  peer :http
  load { require "patron" }
  connect { |peer| Patron::Session.new(base_url: peer.url, timeout: 30) }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
  because :at_once, :tasks, :cancel,
    "0.14, the last for Ruby 3.1, waits in C: no task runs meanwhile, and only in plain threads does a deadline end " \
    "it. Call it in `Heddle.offload`."
end
