# frozen_string_literal: true

Compatibility.library "qdrant-ruby", kind: "Search and databases over HTTP" do
  peer :http
  load { require "qdrant" }
  connect { |peer| Qdrant::Client.new(url: peer.url, api_key: "key") }
  ask { |qdrant, number| qdrant.collections.get(collection_name: "heddle#{number}").fetch("number") }
end
