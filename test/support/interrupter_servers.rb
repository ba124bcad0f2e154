# frozen_string_literal: true

require "socket"
require "openssl"
require "tmpdir"
require_relative "certificates"
require_relative "scripted_mysql"

# The peers of the interrupted operations, in their own process: their descriptors are not the interrupted process's.
class InterrupterServers
  attr_reader :plain, :tls, :path, :memcached, :database, :authority

  def self.start = new

  def initialize
    @authority = Certificates.authority_file
    @path = File.join(Dir.mktmpdir, "socket")
    listeners = Array.new(4) { TCPServer.new("127.0.0.1", 0) } << UNIXServer.new(@path)
    @plain, @tls, @memcached, database = listeners.first(4).map { |listener| listener.addr[1] }
    @database = "mysql://me:secret@127.0.0.1:#{database}/base"
    context = Certificates.context
    @alive, alive = IO.pipe
    @pid = fork do
      alive.close
      serve(listeners, context)
      # Ends also when the interrupted process dies.
      @alive_end.read
    end
    [*listeners, @alive].each(&:close)
    @alive = alive
  end

  def stop
    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end

  private

  def serve(listeners, context)
    @alive_end = @alive
    Thread.report_on_exception = false
    listeners.zip([:http, :https, :memcached, :mysql, :http]) do |listener, protocol|
      Thread.new do
        loop do
          socket = listener.accept
          Thread.new do
            send(:"speak_#{protocol}", socket, context)
          rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
            nil # interrupted
          ensure
            socket.close
          end
        end
      end
    end
  end

  # Answers HTTP requests, and lines of other protocols.
  def speak_http(socket, _context = nil)
    while (line = socket.gets)
      next socket.write("PONG\r\n") if line.start_with?("PING")

      length = 0
      while (field = socket.gets) && field != "\r\n"
        length = field[/\d+/].to_i if field.match?(/\Acontent-length:/i)
      end
      socket.read(length)
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    end
  end

  def speak_https(socket, context)
    tls = OpenSSL::SSL::SSLSocket.new(socket, context)
    tls.accept
    speak_http(tls)
  end

  def speak_memcached(socket, _context)
    while (line = socket.gets)
      answer = {"v" => "VERSION 1.6.18", "m" => "EN"}.fetch(line[0], "END")
      socket.write("#{answer}\r\n")
    end
  end

  def speak_mysql(socket, _context)
    peer = ScriptedMySQL::Peer.new(socket)
    peer.welcome
    loop { peer.read }
  end
end
