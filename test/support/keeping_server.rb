# frozen_string_literal: true

require "socket"
require "openssl"
require "support/certificates"

# An HTTP server that remembers which request came on which connection. Its block answers: it gets a Request, and
# returns the bytes of the answer, or an Array of bytes and of what follows (:close, :reset, or seconds to wait between
# two pieces), or nil to close without an answer.
class KeepingServer
  Request = Struct.new(:connection, :number, :verb, :path, :head, :body) do
    def [](name) = head[/^#{Regexp.escape(name)}: *(.*?)\r?$/i, 1]
  end

  OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

  attr_reader :port

  # @param context [OpenSSL::SSL::SSLContext, nil]
  def initialize(address: "127.0.0.1", port: 0, context: nil, &answer)
    @server = TCPServer.new(address, port)
    @port = @server.addr[1]
    @context = context
    @answer = answer || proc { OK }
    @lock = Mutex.new
    @requests = []
    @sockets = {} # threads by socket
    @endings = []
    @count = 0
    @thread = Thread.new { accept }
  end

  def requests = @lock.synchronize { @requests.dup }

  # The numbers of the connections of all requests.
  def connections = requests.map(&:connection)

  # How each connection that has ended did, as the server saw it: :eof, or the class of an error.
  def endings = @lock.synchronize { @endings.dup }

  def open = @lock.synchronize { @sockets.size }

  # Closes all connections, as a server does that is restarted.
  def drop
    sockets = @lock.synchronize { @sockets.dup }
    sockets.each do |socket, thread|
      thread.kill.join
      socket.close
    end
    @lock.synchronize { @sockets.clear }
  end

  def close
    @thread.kill.join
    @server.close
    drop
  end

  private

  def accept
    loop do
      socket = @server.accept
      socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
      number = @count += 1
      @lock.synchronize do
        @sockets[socket] = Thread.new { serve(socket, number) }.tap { |thread| thread.report_on_exception = false }
      end
    end
  rescue IOError
    nil
  end

  def serve(socket, connection)
    stream = @context ? OpenSSL::SSL::SSLSocket.new(socket, @context).tap(&:accept) : socket
    number = 0
    while (request = read(stream, connection, number += 1))
      @lock.synchronize { @requests << request }
      break unless send(stream, socket, @answer.call(request))
    end
    stream.close # over TLS with close_notify
    ending = :eof unless request
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError => error
    ending = error.class
  ensure
    @lock.synchronize do
      @endings << ending if ending
      @sockets.delete(socket)
    end
    socket.close
  end

  # Returns whether the connection goes on.
  def send(stream, socket, answer)
    pieces = Array(answer)
    pace(stream, pieces)
    socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii")) if pieces.last == :reset
    !answer.nil? && pieces.last != :close && pieces.last != :reset
  end

  def pace(stream, pieces)
    pieces.each do |piece|
      stream.write(piece) if piece.is_a?(String)
      sleep(piece) if piece.is_a?(Numeric)
    end
  end

  def read(stream, connection, number)
    head = +""
    until head.end_with?("\r\n\r\n")
      line = stream.gets or return
      head << line
    end
    length = head[/^content-length: (\d+)/i, 1].to_i
    body = head.match?(/^transfer-encoding: chunked/i) ? chunks(stream) : stream.read(length)
    verb, path = head.split(" ", 3)
    Request.new(connection, number, verb, path, head, body)
  end

  def chunks(stream)
    body = +""
    loop do
      size = stream.gets.to_s.hex
      body << stream.read(size)
      stream.gets
      return body if size.zero?
    end
  end
end
