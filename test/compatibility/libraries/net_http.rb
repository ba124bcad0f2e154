# frozen_string_literal: true

Compatibility.library "net/http", gem: "net-http", kind: "HTTP clients" do
  peer :http
  load { require "net/http" }
  connect { |peer| Net::HTTP.start(peer.host, peer.port) }
  ask { |http, number| JSON.parse(http.get("/heddle#{number}").body).fetch("number") }
  close(&:finish)
  because :afterwards, "After a cancel an open session gives the next request the answer to the cancelled one " \
                       "([net-http #157](https://github.com/ruby/net-http/issues/157)): `heddle/net_http` closes it."
end
