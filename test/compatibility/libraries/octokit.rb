# frozen_string_literal: true

Compatibility.library "octokit", kind: "SDKs of services" do
  peer(:http) { |request| {id: request.number} }
  load { require "octokit" }
  connect { |peer| Octokit::Client.new(api_endpoint: "#{peer.url}/", access_token: "token") }
  ask { |github, number| github.repository("heddle/heddle#{number}").id }
end
