# frozen_string_literal: true

module Heddle
  class Simulation
    # A listening socket of the code under test. It is readable while there are connections to accept: its descriptor is
    # an end of a pair, with a byte for each of them.
    class Listener
      # @param side [Connection::Side]
      # @param backlog [Integer] how many connections may wait to be accepted
      # @param socket_class [Class] of accepted sockets
      def initialize(side, backlog, socket_class)
        @side, @backlog, @socket_class = side, [backlog, 1].max, socket_class
        @waiting = []
      end

      # @return [Boolean] whether its socket is closed
      def closed? = @side.far.closed? || @side.far.read_nonblock(1, exception: false).nil?

      # @return [Boolean] whether it takes no connection now
      def full? = @waiting.size >= @backlog

      # @param descriptor [Integer] a connected socket
      # @param remote [Addrinfo]
      def push(descriptor, remote)
        @waiting << [descriptor, remote]
        @side.far.write_nonblock(".")
      end

      # @param server [BasicSocket] its socket
      # @return [Array(BasicSocket, Addrinfo), nil] a connection
      def take(server)
        return unless @waiting.any?

        server.read_nonblock(1)
        descriptor, remote = @waiting.shift
        [@socket_class.for_fd(descriptor), remote]
      end

      # Waits for a connection.
      #
      # @return [Array(BasicSocket, Addrinfo)]
      def accept(server)
        loop do
          taken = take(server) and return taken
          server.wait_readable
        end
      end
    end
    private_constant :Listener
  end
end
