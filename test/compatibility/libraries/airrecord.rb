# frozen_string_literal: true

Compatibility.library "airrecord", kind: "SDKs of services" do
  peer :http
  load { require "airrecord" }
  connect do |peer|
    client = Airrecord::Client.new("key")
    client.connection.url_prefix = peer.url
    client
  end
  ask { |airtable, number| JSON.parse(airtable.connection.get("/v0/base/heddle#{number}").body).fetch("number") }
end
