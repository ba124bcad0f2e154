# frozen_string_literal: true

# Clients that know nothing of Heddle::Stream, and get a stream in place of a socket. Their reads and writes end in
# time, and an interrupted stream is closed. Net::HTTP's classes wait for the socket itself, past the stream: a
# Heddle.deadline around them bounds both waits, and a server that drips cannot prolong it.
#
#   ruby -Ilib examples/stream_stand_in.rb HOST PORT [PATH]

require "heddle"
require "net/http"

# A GET by Net::HTTP's own classes over a stream that is open.
def get_over(stream, host, path)
  io = Net::BufferedIO.new(stream)
  request = Net::HTTP::Get.new(path, "host" => host)
  request.exec(io, "1.1", path)
  response = Net::HTTPResponse.read_new(io)
  response.reading_body(io, true) { response.body }
  response
end

if $PROGRAM_NAME == __FILE__
  host, port, path = ARGV
  stream = Heddle::Stream.connect(host, Integer(port), timeout: 2)
  puts Heddle.deadline(2) { stream.exchange { get_over(stream, host, path || "/") } }.body
  p stream.statistics
end
