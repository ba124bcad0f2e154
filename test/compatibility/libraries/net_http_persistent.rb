# frozen_string_literal: true

Compatibility.library "net-http-persistent", kind: "HTTP clients" do
  peer :http
  load { require "net/http/persistent" }
  connect { |peer| [Net::HTTP::Persistent.new, peer.url] }
  ask { |(http, url), number| JSON.parse(http.request(URI("#{url}/heddle#{number}")).body).fetch("number") }
  close { |http, _| http.shutdown }
end
