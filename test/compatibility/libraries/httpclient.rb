# frozen_string_literal: true

Compatibility.library "httpclient", kind: "HTTP clients" do
  peer :http
  load { require "httpclient" }
  connect { |peer| [HTTPClient.new, peer.url] }
  ask { |(http, url), number| JSON.parse(http.get_content("#{url}/heddle#{number}")).fetch("number") }
  close { |http, _| http.reset_all }
end
