# frozen_string_literal: true

Compatibility.library "rsolr", kind: "Search and databases over HTTP" do
  peer :http
  load { require "rsolr" }
  connect { |peer| RSolr.connect(url: peer.url) }
  ask { |solr, number| solr.get("select", params: {q: "heddle#{number}"}).fetch("number") }
end
