# frozen_string_literal: true

Compatibility.library "droplet_kit", kind: "SDKs of services" do
  peer(:http) { |request| {droplet: {id: request.number}} }
  load { require "droplet_kit" }
  connect { |peer| DropletKit::Client.new(access_token: "token", api_url: peer.url) }
  ask { |ocean, number| ocean.droplets.find(id: "heddle#{number}").id }
end
