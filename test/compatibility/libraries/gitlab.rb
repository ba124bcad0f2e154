# frozen_string_literal: true

Compatibility.library "gitlab", kind: "SDKs of services" do
  peer(:http) { |request| {id: request.number} }
  load { require "gitlab" }
  connect { |peer| Gitlab.client(endpoint: peer.url, private_token: "token") }
  ask { |gitlab, number| gitlab.project("heddle#{number}").id }
end
