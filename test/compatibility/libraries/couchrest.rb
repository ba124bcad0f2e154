# frozen_string_literal: true

Compatibility.library "couchrest", kind: "Search and databases over HTTP" do
  peer(:http) { |request| {_id: "1", number: request.number} }
  load { require "couchrest" }
  connect { |peer| CouchRest.database("#{peer.url}/things") }
  ask { |things, number| things.get("heddle#{number}")["number"] }
end
