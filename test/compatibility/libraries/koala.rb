# frozen_string_literal: true

Compatibility.library "koala", kind: "SDKs of services" do
  peer :http
  load { require "koala" }
  connect do |peer|
    Koala.config.graph_server = peer.to_s
    Koala::Facebook::API.new
  end
  ask { |facebook, number| facebook.get_object("heddle#{number}", {}, use_ssl: false).fetch("number") }
end
