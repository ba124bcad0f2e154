# frozen_string_literal: true

Compatibility.library "sentry-ruby", kind: "Errors and telemetry" do
  peer :http
  load { require "sentry-ruby" }
  connect do |peer|
    Sentry.init do |config|
      config.dsn = "http://key@#{peer}/1"
      config.background_worker_threads = 0
      config.sdk_logger = Logger.new(nil)
    end
    Sentry.get_current_client.transport
  end
  ask do |transport, number|
    transport.send_data("heddle#{number}")
    number
  end
end
