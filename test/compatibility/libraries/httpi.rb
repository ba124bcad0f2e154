# frozen_string_literal: true

Compatibility.library "httpi", kind: "HTTP clients" do
  peer :http
  load do
    require "httpi"
    HTTPI.log = false
  end
  connect(&:url)
  ask { |url, number| JSON.parse(HTTPI.get("#{url}/heddle#{number}", :net_http).body).fetch("number") }
end
