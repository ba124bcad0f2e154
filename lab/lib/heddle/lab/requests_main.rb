# frozen_string_literal: true

# Makes requests to an HTTP server for a bench:
#
#   requests_main.rb HOST PORT PATH BODY CONNECTIONS
#
# Each line of standard input is a number of requests; when all are answered, prints how many had another answer than
# status 200 with BODY, and the seconds from a request to its whole answer: their median, and the 99th percentile. Each
# connection has one request at a time, and stays open.
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
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }

$stdout.sync = true
$stdin.each_line do |line|
  left = Integer(line)
  wrong = 0
  answers = {}
  began = {}
  took = []
  ask = lambda do |socket|
    next answers.delete(socket) if left.zero?

    left -= 1
    answers[socket] = +""
    began[socket] = now.call
    socket.write(REQUEST)
  end
  sockets.each(&ask)
  until answers.empty?
    IO.select(answers.keys).first.each do |socket|
      answer = answers.fetch(socket) << socket.readpartial(65_536)
      next unless complete.call(answer)

      took << (now.call - began[socket])
      wrong += 1 unless answer.start_with?("HTTP/1.1 200 ") && answer.end_with?("\r\n\r\n#{body}")
      ask.call(socket)
    end
  end
  took.sort!
  puts [wrong, *[0.5, 0.99].map { |part| took[(part * (took.size - 1)).round] }].join(" ")
end
