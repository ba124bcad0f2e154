# frozen_string_literal: true

Compatibility.library "elasticsearch", kind: "Search and databases over HTTP" do
  peer(:http) do |request|
    [200, {"Content-Type" => "application/json", "X-Elastic-Product" => "Elasticsearch"},
      JSON.generate(_id: request.number.to_s)]
  end
  load { require "elasticsearch" }
  connect { |peer| Elasticsearch::Client.new(url: peer.url) }
  ask { |elastic, number| elastic.get(index: "things", id: "heddle#{number}").fetch("_id").to_i }
end
