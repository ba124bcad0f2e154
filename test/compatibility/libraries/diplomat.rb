# frozen_string_literal: true

Compatibility.library "diplomat", kind: "Infrastructure" do
  peer(:http) { |request| [{Key: "k", Value: [request.number.to_s].pack("m0")}] }
  load { require "diplomat" }
  connect { |peer| Diplomat::Kv.new(configuration: Diplomat::Configuration.new.tap { |to| to.url = peer.url }) }
  ask { |consul, number| consul.get("heddle#{number}").to_i }
end
