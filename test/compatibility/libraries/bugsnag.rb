# frozen_string_literal: true

Compatibility.library "bugsnag", kind: "Errors and telemetry" do
  peer :http
  load { require "bugsnag" }
  connect do |peer|
    Bugsnag.configure do |config|
      config.api_key = "0" * 32
      config.set_endpoints(peer.url, peer.url)
      config.delivery_method = :synchronous
      config.logger = Logger.new(nil)
      config.auto_capture_sessions = false
    end
  end
  ask do |_, number|
    Bugsnag.notify(RuntimeError.new("heddle#{number}"))
    number
  end
end
