# frozen_string_literal: true

# Run by Servers::DelayRelay as a program: ruby delay_relay_program.rb PORT TARGET_PORT DELAY_SECONDS

require "socket"

HOST = "127.0.0.1"
CHUNK = 65_536

port, target_port = ARGV.first(2).map { |argument| Integer(argument) }
delay = Float(ARGV.fetch(2))

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Reads at once and delivers later, so that bytes which follow each other keep their distance.
def relay_late(from, to, delay)
  line = Thread::Queue.new
  delivery = Thread.new do
    while (due, bytes = line.pop)
      pause = due - now
      sleep(pause) if pause > 0
      to.write(bytes)
    end
    to.close_write
  rescue SystemCallError, IOError
    from.close
  end
  while (bytes = from.readpartial(CHUNK))
    line << [now + delay, bytes]
  end
rescue SystemCallError, IOError
  line << nil
  delivery.join
end

def relay(from, to)
  IO.copy_stream(from, to)
rescue SystemCallError, IOError
  nil
ensure
  from.close
  to.close
end

listener = TCPServer.new(HOST, port)
listener.listen(1024)
$stdout.sync = true
puts "listening on #{HOST}:#{port}"

loop do
  client = listener.accept
  server = TCPSocket.new(HOST, target_port)
  [client, server].each { |socket| socket.setsockopt(:TCP, :NODELAY, true) }
  Thread.new { relay_late(client, server, delay) }
  Thread.new { relay(server, client) }
rescue SystemCallError => e
  warn "#{e.class}: #{e.message}"
  client&.close
end
