# frozen_string_literal: true

require_relative "refusing"

module Heddle
  class Simulation
    # Ruby's classes of sockets: a socket of the world is a UNIX socket underneath.
    module Sockets
      # Prepended to BasicSocket.
      module Basic
        # @api private
        def remote_address
          side = Sockets.side_of(self)
          side ? side.remote || raise(Errno::ENOTCONN, "getpeername(2)") : super
        end

        # @api private
        def local_address
          side = Sockets.side_of(self)
          side ? side.local : super
        end

        # @api private
        def getpeername
          side = Sockets.side_of(self)
          side&.remote ? side.remote.to_sockaddr : super
        end

        # @api private
        def getsockname
          side = Sockets.side_of(self)
          side ? side.local.to_sockaddr : super
        end

        # @api private
        def setsockopt(*arguments)
          side = Sockets.side_of(self)
          return super unless side

          option = Sockets.option(*arguments)
          return super if option.level == Socket::SOL_SOCKET

          side.options[[option.level, option.optname]] = option
          0
        rescue Errno::EOPNOTSUPP, Errno::ENOPROTOOPT
          raise unless side

          0 # an option that UNIX sockets do not have
        end

        # @api private
        def getsockopt(level, name)
          side = Sockets.side_of(self)
          return super unless side

          unset = Sockets.option(level, name, 0)
          key = [unset.level, unset.optname]
          return side.options.fetch(key, unset) if unset.level != Socket::SOL_SOCKET
          return side.error_option if unset.optname == Socket::SO_ERROR && side.is_a?(Connection::Side)

          super
        end
      end

      # Prepended to IPSocket.
      module IP
        # @api private
        def peeraddr(*arguments)
          side = Sockets.side_of(self)
          side&.remote ? Sockets.list(side.remote) : super
        end

        # @api private
        def addr(*arguments)
          side = Sockets.side_of(self)
          side ? Sockets.list(side.local) : super
        end
      end

      # Prepended to Socket.
      module Connecting
        # @api private
        def connect(address)
          world = Simulation.world or return super
          world.connect(Sockets.stream(self).fileno, Sockets.bytes(address))
          Sockets.await(self)
        end

        # @api private
        def connect_nonblock(address, exception: true)
          world = Simulation.world or return super
          side = Sockets.side_of(self)
          error = side&.remote ? side.state : world.connect(Sockets.stream(self).fileno, Sockets.bytes(address))
          return 0 if error == Errno::EISCONN::Errno && !exception
          return :wait_writable if error == Errno::EINPROGRESS::Errno && !exception
          raise IO::EINPROGRESSWaitWritable, "connect(2) would block" if error == Errno::EINPROGRESS::Errno

          raise SystemCallError.new("connect(2)", error)
        end

        # @api private
        def bind(address)
          world = Simulation.world or return super
          world.network.bind(Sockets.stream(self).fileno, Sockets.addrinfo(address))
          0
        end

        # @api private
        def listen(backlog)
          world = Simulation.world or return super
          world.network.listen(Sockets.stream(self).fileno, backlog, Socket)
          0
        end
      end

      # Prepended to what accepts connections. Socket returns the address, too.
      module Accepting
        # @api private
        def accept
          world = Simulation.world or return super
          accepted = world.network.listener(self).accept(self)
          is_a?(Socket) ? accepted : accepted.first
        end

        # @api private
        def accept_nonblock(exception: true)
          world = Simulation.world or return super
          accepted = world.network.listener(self).take(self)
          return is_a?(Socket) ? accepted : accepted.first if accepted
          return :wait_readable unless exception

          raise IO::EAGAINWaitReadable, "accept(2) would block"
        end

        # @api private
        def sysaccept
          return super unless Simulation.world

          accepted = accept
          socket = is_a?(Socket) ? accepted.first : accepted
          socket.autoclose = false
          is_a?(Socket) ? [socket.fileno, accepted.last] : socket.fileno
        end

        # @api private
        def listen(backlog)
          world = Simulation.world or return super
          world.network.listen(fileno, backlog, (is_a?(UNIXServer) ? UNIXSocket : TCPSocket))
          0
        end
      end

      # Prepended to classes whose `initialize` connects or listens in C.
      module Making
        # Of TCPServer.
        module TCPService
          # @api private
          def initialize(*host, port)
            if Simulation.world
              host = host.first.to_s.empty? ? "0.0.0.0" : host.first
              Sockets.serve(self, Addrinfo.getaddrinfo(host, port, nil, :STREAM).first, TCPSocket)
            else
              super
            end
          end
        end

        # Of UNIXSocket.
        module UNIXClient
          # @api private
          def initialize(path)
            if (world = Simulation.world)
              Sockets.adopt(self, ::Socket.new(:UNIX, :STREAM))
              world.connect(fileno, Socket.sockaddr_un(path))
              Sockets.await(self)
            else
              super
            end
          end
        end

        # Of UNIXServer.
        module UNIXService
          # @api private
          def initialize(path)
            Simulation.world ? Sockets.serve(self, Addrinfo.unix(path), UNIXSocket) : super
          end
        end
      end

      # Prepended to UDPSocket.
      module Datagram
        # @api private
        def initialize(*family)
          world = Simulation.world
          world ? Sockets.adopt(self, world.network.datagrams.open) : super
        end

        # @api private
        def connect(host, port)
          world = Simulation.world or return super
          world.network.datagrams.connect(Sockets.side_of(self), Sockets.datagram_address(host, port))
          0
        end

        # @api private
        def bind(host, port)
          world = Simulation.world or return super
          world.network.datagrams.bind(Sockets.side_of(self), Sockets.datagram_address(host, port))
          0
        end

        # @api private
        def send(message, flags, host = nil, port = nil)
          world = Simulation.world or return super
          side = Sockets.side_of(self)
          to = port ? Sockets.datagram_address(host, port) : (host && Sockets.addrinfo(host)) || side.remote
          raise Errno::EDESTADDRREQ, "send(2)" unless to

          world.network.datagrams.send(side, message.dup.force_encoding(Encoding::BINARY), to)
          message.bytesize
        end

        # @api private
        def close
          side = Sockets.side_of(self) unless closed?
          super
          Simulation.world.network.datagrams.remove(side) if side
        end

        %i[recvfrom recvfrom_nonblock].each do |name|
          # @api private
          define_method(name) do |bytes, flags = 0, *buffer, **options|
            received = super(bytes, flags, *buffer, **options)
            side = received.is_a?(Array) && Sockets.side_of(self)
            side ? [received.first, Sockets.list(side.source(flags.anybits?(Socket::MSG_PEEK)))] : received
          end
        end

        %i[recv recv_nonblock].each do |name|
          # @api private
          define_method(name) do |bytes, flags = 0, *buffer, **options|
            super(bytes, flags, *buffer, **options).tap do |received|
              Sockets.side_of(self)&.source(flags.anybits?(Socket::MSG_PEEK)) if received.is_a?(String)
            end
          end
        end

        %i[readpartial read_nonblock sysread].each do |name|
          # @api private
          define_method(name) do |*arguments, **options|
            super(*arguments, **options).tap do |received|
              Sockets.side_of(self)&.source(false) if received.is_a?(String)
            end
          end
        end
      end

      MESSAGES = Refusing.module_of(%i[sendmsg recvmsg sendmsg_nonblock recvmsg_nonblock]) do |name|
        Simulation.refuse("UDPSocket##{name}")
      end
      private_constant :MESSAGES

      class << self
        # @return [Connection::Side, Datagrams::Side, nil]
        def side_of(io)
          network = Simulation.world&.network
          return unless network

          inode = Core.inode(io.fileno)
          network.side(inode) || network.datagrams.side(inode)
        end

        # @return [Socket::Option] what these arguments of setsockopt say
        def option(level, name = nil, value = nil)
          return level if level.is_a?(Socket::Option)
          return Socket::Option.new(:INET, level, name, value) if value.is_a?(String)

          value = {true => 1, false => 0}.fetch(value, value)
          Socket::Option.int(:INET, level, name, value)
        end

        # @return [String]
        def bytes(address) = address.respond_to?(:to_sockaddr) ? address.to_sockaddr : address

        # @return [Addrinfo]
        def addrinfo(address) = address.is_a?(Addrinfo) ? address : Addrinfo.new(address)

        # @return [Addrinfo]
        def datagram_address(host, port)
          host = "0.0.0.0" if host.nil? || host.to_s.empty?
          Addrinfo.getaddrinfo(host.to_s, port, nil, :DGRAM).first
        end

        # @return [Array(String, Integer, String, String)]
        def list(address)
          [address.ipv6? ? "AF_INET6" : "AF_INET", address.ip_port, address.ip_address, address.ip_address]
        end

        # @return [Socket]
        # @raise [Error] for a Socket of datagrams
        def stream(socket)
          return socket if socket.getsockopt(:SOCKET, :TYPE).int == Socket::SOCK_STREAM

          Simulation.refuse("a Socket of datagrams")
        end

        # Waits until a connect has succeeded.
        #
        # @raise [SystemCallError]
        def await(socket)
          socket.wait_writable
          side = side_of(socket)
          return 0 unless side.error

          raise SystemCallError.new("connect(2) for #{side.remote.inspect_sockaddr}", side.error)
        end

        # A new object gets the descriptor of a socket.
        def adopt(object, socket)
          socket.autoclose = false
          IO.instance_method(:initialize).bind_call(object, socket.fileno, "r+")
          object.sync = true
        end

        # A new object listens.
        #
        # @param address [Addrinfo]
        # @param socket_class [Class] of accepted sockets
        def serve(object, address, socket_class)
          socket = ::Socket.new(address.afamily, :STREAM)
          network = Simulation.world.network
          network.bind(socket.fileno, address)
          network.listen(socket.fileno, Socket::SOMAXCONN, socket_class)
          adopt(object, socket)
        end
      end

      {BasicSocket => [Basic], IPSocket => [IP], Socket => [Connecting, Accepting], UDPSocket => [Datagram, MESSAGES],
       TCPServer => [Making::TCPService, Accepting],
       UNIXSocket => [Making::UNIXClient], UNIXServer => [Making::UNIXService, Accepting]}
        .each { |klass, modules| klass.prepend(*modules) }
    end
    private_constant :Sockets
  end
end
