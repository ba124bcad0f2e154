# frozen_string_literal: true

Compatibility.library "postmark", kind: "SDKs of services" do
  peer :http
  load { require "postmark" }
  connect { |peer| Postmark::ApiClient.new("key", host: peer.host, port: peer.port, secure: false) }
  ask { |postmark, number| postmark.get_message("heddle#{number}").fetch(:number) }
end
