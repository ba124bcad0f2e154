# frozen_string_literal: true

Compatibility.library "hyperclient", kind: "REST mappers" do
  peer(:http) do |request|
    [200, {"Content-Type" => "application/hal+json"}, JSON.generate(number: request.number, _links: {})]
  end
  load { require "hyperclient" }
  connect(&:url)
  ask { |url, number| Hyperclient.new("#{url}/heddle#{number}")._attributes.to_h.fetch("number") }
end
