# frozen_string_literal: true

Compatibility.library "oauth2", kind: "Infrastructure" do
  peer(:http) { |request| {access_token: request.number.to_s, token_type: "Bearer"} }
  load { require "oauth2" }
  connect { |peer| OAuth2::Client.new("id", "secret", site: peer.url) }
  ask { |client, number| client.client_credentials.get_token(scope: "heddle#{number}").token.to_i }
end
