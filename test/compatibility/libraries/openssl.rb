# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "openssl (SSLSocket)", gem: "openssl", kind: "Ruby's own" do
  peer :scripted do |socket|
    tls = OpenSSL::SSL::SSLSocket.new(socket, Certificates.context).accept
    tls.each_line { |line| tls.puts(line.chomp * 40) }
  end
  load { require "openssl" }
  connect do |peer|
    OpenSSL::SSL::SSLSocket.new(TCPSocket.new(peer.host, peer.port)).tap { |tls| tls.sync_close = true }.connect
  end
  ask do |tls, number|
    tls.puts("heddle#{number}")
    tls.gets[/\d+/].to_i
  end
  close(&:close)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
