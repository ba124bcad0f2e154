# frozen_string_literal: true

Compatibility.library "stripe", kind: "SDKs of services" do
  peer(:http) { |request| {id: request.number.to_s, object: "customer"} }
  load { require "stripe" }
  connect { |peer| Stripe::StripeClient.new("sk_test_123", api_base: peer.url) }
  ask { |stripe, number| stripe.v1.customers.retrieve("heddle#{number}").id.to_i }
end
