# frozen_string_literal: true

Compatibility.library "slack-ruby-client", kind: "SDKs of services" do
  peer(:http) { |request| {ok: true, number: request.number} }
  load { require "slack-ruby-client" }
  connect { |peer| Slack::Web::Client.new(endpoint: "#{peer.url}/", token: "token") }
  ask { |slack, number| slack.auth_test(team: "heddle#{number}").number }
end
