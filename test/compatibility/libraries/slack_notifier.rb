# frozen_string_literal: true

Compatibility.library "slack-notifier", kind: "SDKs of services" do
  peer :http
  load { require "slack-notifier" }
  connect { |peer| Slack::Notifier.new(peer.url) }
  ask { |slack, number| JSON.parse(slack.ping("heddle#{number}").first.body).fetch("number") }
end
