# frozen_string_literal: true

require_relative "../reasons"

Compatibility.library "io-stream", kind: "RPC and WebSocket" do
  peer(:scripted) { |socket| socket.each_line { |line| socket.puts(line.chomp * 40) } }
  load { require "io/stream" }
  connect { |peer| IO::Stream(TCPSocket.new(peer.host, peer.port)) }
  ask do |stream, number|
    stream.write("heddle#{number}\n")
    stream.flush
    stream.gets[/\d+/].to_i
  end
  close(&:close)
  because :afterwards, Compatibility::Reasons::LATE_ANSWER
end
