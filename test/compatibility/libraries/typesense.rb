# frozen_string_literal: true

Compatibility.library "typesense", kind: "Search and databases over HTTP" do
  peer :http
  load { require "typesense" }
  connect do |peer|
    Typesense::Client.new(nodes: [{host: peer.host, port: peer.port, protocol: "http"}], api_key: "key",
      connection_timeout_seconds: 30, num_retries: 0)
  end
  ask { |typesense, number| typesense.collections["heddle#{number}"].retrieve.fetch("number") }
end
