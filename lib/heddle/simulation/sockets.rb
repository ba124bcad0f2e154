# frozen_string_literal: true

module Heddle
  class Simulation
    # What a socket of the world says of itself: underneath it is a UNIX socket.
    module Sockets
      # Prepended to BasicSocket.
      module Basic
        # @api private
        def remote_address
          side = Simulation.world&.side_of(self)
          side ? side.remote : super
        end

        # @api private
        def local_address
          side = Simulation.world&.side_of(self)
          side ? side.local : super
        end

        # @api private
        def getpeername
          side = Simulation.world&.side_of(self)
          side ? side.remote.to_sockaddr : super
        end

        # @api private
        def getsockname
          side = Simulation.world&.side_of(self)
          side ? side.local.to_sockaddr : super
        end

        # @api private
        def setsockopt(*arguments)
          super
        rescue Errno::EOPNOTSUPP, Errno::ENOPROTOOPT
          raise unless Simulation.world&.side_of(self)

          0 # an option of TCP
        end

        # @api private
        def getsockopt(*arguments)
          side = Simulation.world&.side_of(self)
          return side.error_option if side && Sockets.error?(*arguments)

          super
        rescue Errno::EOPNOTSUPP, Errno::ENOPROTOOPT
          raise unless Simulation.world&.side_of(self)

          Socket::Option.int(:INET, :TCP, :NODELAY, 1)
        end
      end

      # Prepended to IPSocket.
      module IP
        # @api private
        def peeraddr(*arguments)
          side = Simulation.world&.side_of(self)
          side ? Sockets.list(side.remote) : super
        end

        # @api private
        def addr(*arguments)
          side = Simulation.world&.side_of(self)
          side ? Sockets.list(side.local) : super
        end
      end

      # Prepended to Socket.
      module Connecting
        # @api private
        def connect(address)
          world = Simulation.world or return super
          world.connect(fileno, Sockets.bytes(address))
          wait_writable
          side = world.side_of(self)
          side.error ? raise(SystemCallError.new("connect(2) for #{side.remote.inspect_sockaddr}", side.error)) : 0
        end

        # @api private
        def connect_nonblock(address, exception: true)
          world = Simulation.world or return super
          side = world.side_of(self)
          error = side ? side.state : world.connect(fileno, Sockets.bytes(address))
          return 0 if error == Errno::EISCONN::Errno && !exception
          return :wait_writable if error == Errno::EINPROGRESS::Errno && !exception
          raise IO::EINPROGRESSWaitWritable, "connect(2) would block" if error == Errno::EINPROGRESS::Errno

          raise SystemCallError.new("connect(2)", error)
        end

        %i[bind listen].each do |name|
          # @api private
          define_method(name) do |*arguments|
            Simulation.refuse("Socket##{name}") if Simulation.world
            super(*arguments)
          end
        end
      end

      # Prepended to classes whose sockets the world does not have.
      module Refused
        # @api private
        def initialize(*arguments, **options)
          Simulation.refuse(self.class) if Simulation.world
          super
        end
      end

      # @return [Boolean] whether these arguments ask for the error of a connect
      def self.error?(level, option = nil)
        [Socket::SOL_SOCKET, :SOCKET, "SOCKET"].include?(level) && [Socket::SO_ERROR, :ERROR, "ERROR"].include?(option)
      end

      # @return [String]
      def self.bytes(address) = address.respond_to?(:to_sockaddr) ? address.to_sockaddr : address

      # @return [Array(String, Integer, String, String)]
      def self.list(address)
        [address.ipv6? ? "AF_INET6" : "AF_INET", address.ip_port, address.ip_address, address.ip_address]
      end

      {BasicSocket => Basic, IPSocket => IP, Socket => Connecting}.each { |klass, methods| klass.prepend(methods) }
      [TCPServer, UDPSocket, UNIXSocket, UNIXServer].each { |klass| klass.prepend(Refused) }
    end
    private_constant :Sockets
  end
end
