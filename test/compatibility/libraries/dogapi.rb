# frozen_string_literal: true

Compatibility.library "dogapi", kind: "SDKs of services" do
  peer :http
  load { require "dogapi" }
  connect { |peer| Dogapi::Client.new("key", "application", nil, nil, false, 30, peer.url) }
  ask { |datadog, number| datadog.get_monitor("heddle#{number}").last.fetch("number") }
end
