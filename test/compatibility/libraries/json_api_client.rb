# frozen_string_literal: true

Compatibility.library "json_api_client", kind: "REST mappers" do
  peer(:http) do |request|
    thing = {type: "things", id: request.number.to_s, attributes: {}}
    [200, {"Content-Type" => "application/vnd.api+json"}, JSON.generate(data: thing)]
  end
  load { require "json_api_client" }
  connect do |peer|
    Class.new(JsonApiClient::Resource) do
      define_singleton_method(:name) { "Thing" }
      self.site = "#{peer.url}/"
    end
  end
  ask { |things, number| things.find("heddle#{number}").first.id.to_i }
end
