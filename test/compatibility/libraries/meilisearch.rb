# frozen_string_literal: true

Compatibility.library "meilisearch", kind: "Search and databases over HTTP" do
  peer :http
  load { require "meilisearch" }
  connect { |peer| MeiliSearch::Client.new(peer.url, "key").index("things") }
  ask { |things, number| things.document("heddle#{number}").fetch("number") }
end
