# frozen_string_literal: true

Compatibility.library "contentful", kind: "SDKs of services" do
  peer(:http) do |request|
    asset = {sys: {id: request.number.to_s, type: "Asset"}, fields: {}}
    {**asset, items: [asset]}
  end
  load { require "contentful" }
  connect do |peer|
    Contentful::Client.new(space: "space", access_token: "token", api_url: peer.to_s, secure: false,
      dynamic_entries: :manual)
  end
  ask { |contentful, number| contentful.asset("heddle#{number}").id.to_i }
end
