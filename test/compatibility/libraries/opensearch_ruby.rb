# frozen_string_literal: true

Compatibility.library "opensearch-ruby", kind: "Search and databases over HTTP" do
  peer(:http) { |request| {_id: request.number.to_s, version: {number: "2.0", distribution: "opensearch"}} }
  load { require "opensearch" }
  connect { |peer| OpenSearch::Client.new(url: peer.url) }
  ask { |search, number| search.get(index: "things", id: "heddle#{number}").fetch("_id").to_i }
end
