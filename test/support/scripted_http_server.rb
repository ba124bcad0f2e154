# frozen_string_literal: true

require "socket"
require "openssl"
require "support/certificates"
require "support/slowness"

# An HTTP server that sends a script byte by byte, and ends connections as the script says. A script is one Array a
# connection, of replies; a reply is {pieces: [String], ending: nil, :close or :reset}. A connection without a script
# is closed. The server keeps what clients sent, by connection: the order in which it reads two connections is random.
class ScriptedHTTPServer
  include Heddle::Clock

  PAUSE = 0.0003 # seconds between two pieces, so that they are likely to arrive one by one
  OUTSTANDING = 0x5411 # SIOCOUTQ: bytes that the other side has not acknowledged yet
  GONE = 7 # TCP_CLOSE: the client has reset the connection

  attr_reader :port

  def initialize(tls: false)
    @server = TCPServer.new("127.0.0.1", 0)
    @port = @server.addr[1]
    @context = tls ? self.class.tls_context : nil
    @lock = Mutex.new
    @heard = [] # of each connection
    @connections = []
    @scripts = []
    @thread = Thread.new { accept }
  end

  # @param scripts [Array<Array<Hash>>] of the connections to come
  def play(scripts)
    drop
    @lock.synchronize do
      # A connection that was made at the end of the last exchange, and is not accepted yet, must not take the first
      # script of this one.
      while (late = @server.accept_nonblock(exception: false)) != :wait_readable
        late.close
      end
      @scripts = scripts.map(&:dup)
      @heard = []
    end
  end

  # Waits until the server has finished what it began.
  def settle
    @lock.synchronize { @connections.dup }.each { |thread, _| thread.join(Slowness.stretch(5)) }
    received
  end

  def received
    @lock.synchronize { @heard.flatten(1) }
  end

  # Waits until the server has sent all that comes before the next request.
  def quiet
    limit = now + Slowness.stretch(5)
    until @lock.synchronize { @connections.all? { |thread, _| thread[:quiet] || !thread.alive? } }
      raise "the scripted server is not done" if now > limit
      sleep(PAUSE)
    end
    true
  end

  def drop
    @lock.synchronize { @connections.dup }.each do |thread, socket|
      thread.kill.join
      socket.close
    end
    @lock.synchronize { @connections.clear }
  end

  def close
    @thread.kill.join
    drop
    @server.close
  end

  def self.tls_context = (@tls_context ||= Certificates.context)

  private

  def accept
    loop do
      @server.wait_readable
      @lock.synchronize do
        socket = @server.accept_nonblock(exception: false)
        next if socket == :wait_readable

        @heard << []
        @connections << [serving(socket, @scripts.shift, @heard.last), socket]
      end
    end
  rescue IOError
    nil
  end

  def serving(socket, script, heard)
    socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    Thread.new { serve(socket, script, heard) }.tap { |thread| thread.report_on_exception = false }
  end

  def serve(socket, script, heard)
    stream = socket
    if @context
      stream = OpenSSL::SSL::SSLSocket.new(socket, @context)
      stream.accept
    end
    # Without a script it reads and closes, so that the client sees the end of the file and no reset.
    (script || [{pieces: [], ending: :close}]).each do |reply|
      Thread.current[:quiet] = true
      request = read_request(stream) or break
      Thread.current[:quiet] = false
      @lock.synchronize { heard << request }
      reply[:pieces].each_with_index do |piece, i|
        sleep(PAUSE) if i > 0
        stream.write(piece)
        stream.flush
      end
      delivered(socket)
      case reply[:ending]
      when :close then break
      when :reset
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii"))
        break
      end
    end
  rescue SystemCallError, IOError, OpenSSL::SSL::SSLError
    nil
  ensure
    socket.close
  end

  # Waits until the client's kernel has all bytes. As long as nothing is acknowledged, the congestion window holds
  # small pieces back, and the end of the file behind them; a reset would drop them. Not for a client that has gone,
  # nor for one that does not read: it has more than the test looks at.
  def delivered(socket)
    left = nil
    since = now
    until (outstanding = outstanding(socket)).zero?
      left, since = outstanding, now if outstanding != left
      break if now - since > 0.2
      sleep(PAUSE)
    end
  end

  def outstanding(socket)
    return 0 if socket.getsockopt(Socket::IPPROTO_TCP, Socket::TCP_INFO).data.getbyte(0) == GONE

    count = [0].pack("i")
    socket.ioctl(OUTSTANDING, count)
    count.unpack1("i")
  end

  def read_request(stream)
    head = +"".b
    until head.end_with?("\r\n\r\n")
      line = stream.gets or return
      head << line
    end
    [head, read_body(stream, head)]
  end

  def read_body(stream, head)
    return read_chunks(stream) if head.match?(/^transfer-encoding: chunked/i)

    length = head[/^content-length: (\d+)/i, 1].to_i
    length.zero? ? "" : stream.read(length)
  end

  def read_chunks(stream)
    body = +"".b
    loop do
      size = stream.gets.to_s.hex
      body << stream.read(size)
      stream.gets
      return body if size.zero?
    end
  end
end
