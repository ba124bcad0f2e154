# frozen_string_literal: true

require_relative "../peers/dovecot"
require_relative "../reasons"

Compatibility.library "net-imap", kind: "Mail" do
  peer Compatibility::Peers::Dovecot
  load { require "net/imap" }
  connect do |peer|
    Net::IMAP.new(peer.host, port: peer.port).tap { |imap| imap.login(peer.username, peer.password) }
  end
  ask do |imap, number|
    imap.create("heddle#{number}")
    imap.list("", "heddle#{number}").first.name[/\d+/].to_i
  end
  close(&:disconnect)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
