# frozen_string_literal: true

Compatibility.library "algolia", kind: "Search and databases over HTTP" do
  peer :http
  load { require "algolia" }
  connect do |peer|
    host = Algolia::Transport::StatefulHost.new(peer.host, protocol: "http://", port: peer.port)
    Algolia::SearchClient.create_with_config(Algolia::Configuration.new("id", "key", [host], "Search"))
  end
  ask { |algolia, number| algolia.get_object("things", "heddle#{number}").fetch(:number) }
end
