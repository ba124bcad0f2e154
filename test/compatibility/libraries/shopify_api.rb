# frozen_string_literal: true

Compatibility.library "shopify_api", kind: "SDKs of services" do
  peer :http, tls: true
  load do
    require "logger"
    require "ostruct"
    require "shopify_api"
  end
  connect do |peer|
    session = ShopifyAPI::Auth::Session.new(shop: "#{peer.host}:#{peer.port}", access_token: "token")
    ShopifyAPI::Clients::Rest::Admin.new(session: session)
  end
  ask { |shopify, number| shopify.get(path: "heddle#{number}").body.fetch("number") }
end
