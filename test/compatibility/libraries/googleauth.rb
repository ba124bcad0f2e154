# frozen_string_literal: true

Compatibility.library "googleauth", kind: "SDKs of services" do
  peer(:http) { |request| {access_token: request.number.to_s, token_type: "Bearer"} }
  load { require "googleauth" }
  connect do |peer|
    Signet::OAuth2::Client.new(token_credential_uri: peer.url, client_id: "id", client_secret: "secret")
  end
  ask do |client, number|
    client.refresh_token = "heddle#{number}"
    client.fetch_access_token.fetch("access_token").to_i
  end
end
