# frozen_string_literal: true

Compatibility.library "searchkick", kind: "Search and databases over HTTP" do
  peer(:http) do |request|
    [200, {"Content-Type" => "application/json", "X-Elastic-Product" => "Elasticsearch"},
      JSON.generate(_source: {id: request.number})]
  end
  load do
    require "searchkick"
    require "elasticsearch"
  end
  connect do |peer|
    Searchkick.client = Elasticsearch::Client.new(url: peer.url)
    Searchkick::Index.new("things")
  end
  ask { |things, number| things.retrieve(Struct.new(:id).new("heddle#{number}")).fetch("id") }
end
