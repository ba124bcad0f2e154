# frozen_string_literal: true

Compatibility.library "down", kind: "HTTP clients" do
  peer :http
  load { require "down" }
  connect(&:url)
  ask { |url, number| JSON.parse(Down.download("#{url}/heddle#{number}").read).fetch("number") }
end
