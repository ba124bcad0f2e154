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

      # @return [Array(String, Integer, String, String)]
      def self.list(address)
        [address.ipv6? ? "AF_INET6" : "AF_INET", address.ip_port, address.ip_address, address.ip_address]
      end

      {BasicSocket => Basic, IPSocket => IP}.each { |klass, methods| klass.prepend(methods) }
    end
    private_constant :Sockets
  end
end
