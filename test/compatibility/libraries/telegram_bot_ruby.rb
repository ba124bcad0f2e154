# frozen_string_literal: true

Compatibility.library "telegram-bot-ruby", kind: "SDKs of services" do
  peer(:http) { |request| {ok: true, result: {number: request.number}} }
  load { require "telegram/bot" }
  connect { |peer| Telegram::Bot::Api.new("token", url: peer.url) }
  ask { |telegram, number| telegram.call("getChat", chat_id: "heddle#{number}").dig("result", "number") }
end
