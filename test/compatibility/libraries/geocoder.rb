# frozen_string_literal: true

Compatibility.library "geocoder", kind: "SDKs of services" do
  peer(:http) do |request|
    {type: "FeatureCollection", features: [{type: "Feature", properties: {number: request.number}}]}
  end
  load { require "geocoder" }
  connect do |peer|
    Geocoder.configure(lookup: :photon, always_raise: :all, timeout: 30, photon: {host: peer.to_s})
  end
  ask { |_, number| Geocoder.search("heddle#{number}").first.data.dig("properties", "number") }
end
