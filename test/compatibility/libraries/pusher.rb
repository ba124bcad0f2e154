# frozen_string_literal: true

Compatibility.library "pusher", kind: "SDKs of services" do
  peer :http
  load { require "pusher" }
  connect do |peer|
    Pusher::Client.new(host: peer.host, port: peer.port, app_id: "id", key: "key", secret: "secret", use_tls: false)
  end
  ask { |pusher, number| pusher.get("/channels/heddle#{number}").fetch(:number) }
end
