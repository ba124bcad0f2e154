# frozen_string_literal: true

require "socket"
require_relative "scheduler"
require_relative "stream/as_io"

module Heddle
  # Bytes with a deadline, over TCP, UNIX sockets and TLS, in tasks and in plain threads: every operation, a whole line as
  # much as a connect, has a time in which it is over. Stands in for a TCPSocket.
  #
  # Timeouts bound whole operations, not single waits: a server that sends a byte now and then does not draw them out.
  # Whatever interrupts an operation (its timeout, a {Heddle.deadline}, a cancel, Thread#raise) closes the stream, for nobody
  # knows where the conversation stands then.
  #
  # What is written is gathered until {#flush}, or until a read has to wait. A client that writes and never reads needs
  # +sync: true+.
  #
  # The methods that read and write are in C: ext/heddle/stream.
  #
  # @example
  #   stream = Heddle::Stream.connect("127.0.0.1", 11211, timeout: 0.25)
  #   version = stream.exchange { stream.write("version\r\n"); stream.gets(limit: 2048) }
  class Stream
    include AsIO

    # Bytes that a stream holds at most: of a line, of {#peek}, of replies that arrive while more is written.
    BUFFER_LIMIT = 64 << 20

    private_class_method :allocate

    class << self
      # Connects to a TCP server.
      #
      # @param host [String] a name or an address; all addresses of a name are raced
      # @param port [Integer, String]
      # @param timeout [Numeric, nil] seconds, for each of the three that is not given
      # @param connect_timeout [Numeric, nil] seconds for look-up, connect and TLS handshake together
      # @param read_timeout [Numeric, nil] seconds that an operation that reads may take in all
      # @param write_timeout [Numeric, nil] seconds that an operation that sends may take in all
      # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext] see {TLS.start}; true: the system's authorities
      # @param keepalive [Boolean] whether the kernel asks now and then if the peer is still there
      # @param local_host [String, nil] the address to connect from, with +local_port+
      # @return [Stream]
      # @raise [DeadlineExceeded] when connecting takes longer than connect_timeout
      # @raise [SystemCallError, SocketError, OpenSSL::SSL::SSLError]
      def connect(host, port, timeout: nil, connect_timeout: timeout, read_timeout: timeout, write_timeout: timeout,
        tls: false, keepalive: false, local_host: nil, local_port: nil, **options)
        Heddle.deadline(connect_timeout) do
          socket = TCPSocket.new(host, port, local_host, local_port)
          dressed(socket) do
            socket.setsockopt(:TCP, :NODELAY, true)
            socket.setsockopt(:SOCKET, :KEEPALIVE, true) if keepalive
            peer = host.to_s.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}"
            stream = new(socket, peer: peer, read_timeout: read_timeout, write_timeout: write_timeout, **options)
            stream.start_tls(host, tls, timeout: nil) if tls # connect_timeout is around it
            stream
          end
        end
      end

      # Connects to a UNIX socket.
      #
      # @param path [String]
      # @param timeout [Numeric, nil] seconds, see {.connect}, as the other three
      # @return [Stream]
      def unix(path, timeout: nil, connect_timeout: timeout, read_timeout: timeout, write_timeout: timeout, **options)
        Heddle.deadline(connect_timeout) do
          socket = UNIXSocket.new(path)
          dressed(socket) { new(socket, peer: path, read_timeout: read_timeout, write_timeout: write_timeout, **options) }
        end
      end

      # Connects to a TCP server and does a TLS handshake, both within +connect_timeout+. The peer's certificate and name are
      # verified.
      #
      # @param tls [Hash, OpenSSL::SSL::SSLContext, true] see {TLS.start}
      # @return [Stream] see {.connect} for the rest
      def tls(host, port, tls: true, **options)
        connect(host, port, tls: tls, **options)
      end

      private

      # A socket is not left open by what fails before its stream is there.
      def dressed(socket)
        complete = false
        stream = yield
        complete = true
        stream
      ensure
        socket.close unless complete
      end
    end

    # Puts a stream on a socket that somebody else made; bytes that it has read ahead are taken over. Nobody else may read
    # from it or write to it from now on. Bytes that it has not sent yet are sent, within the write timeout.
    #
    # @param io [IO, #to_io] a socket, or a pipe
    # @param peer [String, nil] what to call the other side in messages
    # @param timeout [Numeric, nil] seconds, for both of the next two
    # @param sync [Boolean] whether each write is sent at once
    # @param buffer_limit [Integer] bytes, see {BUFFER_LIMIT}
    def initialize(io, peer: nil, timeout: nil, read_timeout: timeout, write_timeout: timeout, sync: false,
      buffer_limit: BUFFER_LIMIT)
      self.read_timeout = read_timeout
      self.write_timeout = write_timeout
      io = IO.try_convert(io) || raise(TypeError, "a stream needs an IO, not #{io.class}")
      Heddle.deadline(write_timeout) { io.flush } # what it has gathered itself comes first
      attach(io, peer || name_of(io), buffer_limit)
      self.sync = sync
    end

    # @param seconds [Numeric, nil] for operations that read as for those that send
    def timeout=(seconds)
      self.read_timeout = self.write_timeout = seconds
    end

    # Goes on with TLS, as protocols do that ask for it in the clear first.
    #
    # @param host [String, nil] whose certificate it has to be
    # @param tls [Hash, OpenSSL::SSL::SSLContext, true] see {TLS.start}
    # @param timeout [Numeric, nil] seconds for the handshake, the read timeout unless given
    # @return [self]
    # @raise [IOError] when bytes have arrived in the clear that were not read, for somebody may have put them there: the stream
    #   is closed. When TLS has begun already: it goes on
    # @raise [StreamBusy] while somebody else uses the stream, which goes on
    def start_tls(host, tls = true, timeout: read_timeout)
      secure { Heddle.deadline(timeout) { attach_tls(TLS.start(self, host, tls)) } }
      self
    end

    # @return [Boolean] whether what is sent is encrypted
    def tls?
      !tls.nil?
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{peer}#{" TLS" if tls?}#{" closed" if closed?}>"
    end

    autoload :TLS, File.expand_path("stream/tls", __dir__)

    private

    def name_of(io)
      address = io.remote_address
      return address.inspect_sockaddr if address.ip?

      # Of a pair, and of who has connected to a server, it is empty.
      address.unix_path.empty? ? io.inspect : address.unix_path
    rescue NoMethodError, SystemCallError, SocketError
      io.inspect
    end
  end
end
