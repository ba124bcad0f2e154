# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "socket (TCPSocket)", gem: "socket", kind: "Ruby's own" do
  peer(:scripted) { |socket| socket.each_line { |line| socket.puts(line.chomp * 40) } }
  load { require "socket" }
  connect { |peer| TCPSocket.new(peer.host, peer.port) }
  ask do |socket, number|
    socket.puts("heddle#{number}")
    socket.gets[/\d+/].to_i
  end
  close(&:close)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
