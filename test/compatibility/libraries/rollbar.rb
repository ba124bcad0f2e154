# frozen_string_literal: true

Compatibility.library "rollbar", kind: "Errors and telemetry" do
  peer :http
  load { require "rollbar" }
  connect do |peer|
    Rollbar::Notifier.new.tap do |rollbar|
      rollbar.configure do |config|
        config.access_token = "token"
        config.endpoint = peer.url
        config.logger = Logger.new(nil)
      end
    end
  end
  ask do |rollbar, number|
    rollbar.error("heddle#{number}")
    number
  end
end
