# frozen_string_literal: true

require_relative "../peers/smtp"
require_relative "../reasons"

Compatibility.library "net-smtp", kind: "Mail" do
  peer Compatibility::Peers::SMTP
  load { require "net/smtp" }
  connect { |peer| Net::SMTP.new(peer.host, peer.port).tap { |smtp| smtp.read_timeout = 30 }.start }
  ask do |smtp, number|
    reply = smtp.send_message("heddle#{number}\r\n", "me@heddle.example", "you@heddle.example")
    reply.string[/heddle(\d+)/, 1].to_i
  end
  close(&:finish)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
