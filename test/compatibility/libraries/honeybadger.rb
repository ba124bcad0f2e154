# frozen_string_literal: true

Compatibility.library "honeybadger", kind: "Errors and telemetry" do
  peer :http
  load { require "honeybadger/ruby" }
  connect do |peer|
    agent = Honeybadger::Agent.new
    agent.configure do |config|
      config.api_key = "key"
      config.connection.host = peer.host
      config.connection.port = peer.port
      config.connection.secure = false
      config.logger = Logger.new(nil)
      config.env = "production"
    end
    agent
  end
  ask do |agent, number|
    agent.notify("heddle#{number}", sync: true)
    number
  end
end
