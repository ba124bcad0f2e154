# frozen_string_literal: true

# Clients that know nothing of Heddle::Stream, handed one in place of a socket: each of their reads has a deadline then, and
# a server that drips cannot draw it out. redis-client's connection and Net::HTTP's (the gem net-protocol) are given one here.
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
  puts stream.exchange(timeout: 2) { get_over(stream, host, path || "/").body }
  p stream.statistics
end
