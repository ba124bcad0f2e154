# frozen_string_literal: true

require_relative "../peers/smtp"

Compatibility.library "mail", kind: "Mail" do
  peer Compatibility::Peers::SMTP
  load { require "mail" }
  connect { |peer| {address: peer.host, port: peer.port, return_response: true, enable_starttls_auto: false} }
  ask do |settings, number|
    mail = Mail.new(from: "me@heddle.example", to: "you@heddle.example", body: "heddle#{number}")
    mail.delivery_method(:smtp, settings)
    mail.deliver!.string[/heddle(\d+)/, 1].to_i
  end
end
