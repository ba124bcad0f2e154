# frozen_string_literal: true

Compatibility.library "vault", kind: "Infrastructure" do
  peer(:http) { |request| {data: {number: request.number}} }
  load { require "vault" }
  connect { |peer| Vault::Client.new(address: peer.url, token: "token") }
  ask { |vault, number| vault.logical.read("secret/heddle#{number}").data.fetch(:number) }
end
