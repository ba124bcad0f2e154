# frozen_string_literal: true

Compatibility.library "twilio-ruby", kind: "SDKs of services" do
  peer(:http) { |request| {sid: request.number.to_s} }
  load { require "twilio-ruby" }
  connect do |peer|
    Twilio::REST::Client.new("sid", "token").tap do |twilio|
      twilio.define_singleton_method(:build_uri) { |uri| super(uri).sub(%r{https://[^/]+}, peer.url) }
    end
  end
  ask { |twilio, number| twilio.api.account.calls("heddle#{number}").fetch.sid.to_i }
end
