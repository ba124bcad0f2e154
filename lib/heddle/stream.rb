# frozen_string_literal: true

require "socket"
require_relative "run"
require_relative "stream/as_io"

module Heddle
  # Bytes with a deadline, over TCP, UNIX sockets and TLS, in tasks and in plain threads. Every operation, from a
  # connect to a whole line, ends within its timeout. Can replace a TCPSocket.
  #
  # Timeouts bound whole operations, not single waits: a server that sends a byte now and then does not prolong them. An
  # interrupted operation (by its timeout, a {Heddle.deadline}, a cancel, Thread#raise) closes the stream, since the
  # state of the exchange is unknown then.
  #
  # The stream buffers written bytes until {#flush}, or until a read must wait. A client that writes and never reads
  # needs +sync: true+.
  #
  # The methods that read and write are in C: ext/heddle/stream.
  #
  # @example
  #   stream = Heddle::Stream.connect("127.0.0.1", 11211, timeout: 0.25)
  #   version = stream.exchange { stream.write("version\r\n"); stream.gets(limit: 2048) }
  class Stream
    include AsIO

    # The most bytes that a stream holds: of a line, of {#peek}, of replies that arrive during a write.
    BUFFER_LIMIT = 64 << 20

    private_class_method :allocate

    class << self
      # Connects to a TCP server.
      #
      # @param host [String] a name or an address; connects race over all addresses of a name
      # @param port [Integer, String]
      # @param timeout [Numeric, nil] seconds, the default of the other three timeouts
      # @param connect_timeout [Numeric, nil] seconds for look-up, connect and TLS handshake together
      # @param read_timeout [Numeric, nil] seconds for a whole operation that reads
      # @param write_timeout [Numeric, nil] seconds for a whole operation that sends
      # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext] see {TLS.start}; true: the system's authorities
      # @param keepalive [Boolean] whether the kernel probes now and then if the peer is still there
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
      # @param timeout [Numeric, nil] seconds; all four timeouts are those of {.connect}
      # @param options see {.connect}
      # @return [Stream]
      def unix(path, timeout: nil, connect_timeout: timeout, read_timeout: timeout, write_timeout: timeout, **options)
        Heddle.deadline(connect_timeout) do
          socket = UNIXSocket.new(path)
          dressed(socket) do
            new(socket, peer: path, read_timeout: read_timeout, write_timeout: write_timeout, **options)
          end
        end
      end

      # Connects to a TCP server and does a TLS handshake, both within +connect_timeout+. The peer's certificate and
      # name are verified.
      #
      # @param host [String]
      # @param port [Integer]
      # @param tls [Hash, OpenSSL::SSL::SSLContext, true] see {TLS.start}
      # @param options see {.connect}
      # @return [Stream] see {.connect} for the errors
      def tls(host, port, tls: true, **options)
        connect(host, port, tls: tls, **options)
      end

      private

      # Closes the socket if an error prevents its stream.
      def dressed(socket)
        complete = false
        stream = yield
        complete = true
        stream
      ensure
        socket.close unless complete
      end
    end

    # Puts a stream on an existing socket. The stream takes over bytes that the socket has read ahead, and sends bytes
    # that the socket has buffered, within the write timeout. No other code may read from the socket or write to it from
    # now on.
    #
    # @param io [IO, #to_io] a socket, or a pipe
    # @param peer [String, nil] the peer's name, for messages
    # @param timeout [Numeric, nil] seconds, the default of both other timeouts
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

    # @param seconds [Numeric, nil] for operations that read and for operations that send
    def timeout=(seconds)
      self.read_timeout = self.write_timeout = seconds
    end

    # Starts TLS on a connection that began in clear text (STARTTLS).
    #
    # @param host [String, nil] the name that the certificate must have
    # @param tls [Hash, OpenSSL::SSL::SSLContext, true] see {TLS.start}
    # @param timeout [Numeric, nil] seconds for the handshake, the read timeout unless given
    # @return [self]
    # @raise [IOError] when unread bytes arrived in clear text, since an attacker may have inserted them: the stream is
    #   closed. Also when TLS has already begun: the stream stays open
    # @raise [StreamBusy] while another fiber or thread uses the stream, which stays open
    def start_tls(host, tls = true, timeout: read_timeout)
      secure { Heddle.deadline(timeout) { attach_tls(TLS.start(self, host, tls)) } }
      self
    end

    # @return [Boolean] whether TLS encrypts the stream
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

      # A socket pair, and a client accepted by a server, have an empty path.
      address.unix_path.empty? ? io.inspect : address.unix_path
    rescue NoMethodError, SystemCallError, SocketError
      io.inspect
    end
  end
end
