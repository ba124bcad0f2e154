# frozen_string_literal: true

# Makes requests to an HTTP server for a bench:
#
#   requests_main.rb HOST PORT PATH BODY CONNECTIONS
#
# Each line of standard input is a number of requests; when all are answered, prints how many had another answer than
# status 200 with BODY. Each connection has one request at a time, and stays open.
require "socket"

host, port, path, body, connections = ARGV
REQUEST = "GET #{path} HTTP/1.1\r\nHost: #{host}:#{port}\r\n\r\n"
sockets = Array.new(Integer(connections)) do
  TCPSocket.new(host, Integer(port)).tap { |socket| socket.setsockopt(:TCP, :NODELAY, 1) }
end

complete = lambda do |answer|
  head_end = answer.index("\r\n\r\n")
  head_end && answer.bytesize >= head_end + 4 + answer[/^content-length: (\d+)/i, 1].to_i
end

$stdout.sync = true
$stdin.each_line do |line|
  left = Integer(line)
  wrong = 0
  answers = {}
  ask = lambda do |socket|
    next answers.delete(socket) if left.zero?

    left -= 1
    answers[socket] = +""
    socket.write(REQUEST)
  end
  sockets.each(&ask)
  until answers.empty?
    IO.select(answers.keys).first.each do |socket|
      answer = answers.fetch(socket) << socket.readpartial(65_536)
      next unless complete.call(answer)

      wrong += 1 unless answer.start_with?("HTTP/1.1 200 ") && answer.end_with?("\r\n\r\n#{body}")
      ask.call(socket)
    end
  end
  puts wrong
end
