# frozen_string_literal: true

Compatibility.library "open-uri", kind: "HTTP clients" do
  peer :http
  load { require "open-uri" }
  connect(&:url)
  ask { |url, number| JSON.parse(URI("#{url}/heddle#{number}").open(&:read)).fetch("number") }
end
