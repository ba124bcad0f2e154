# frozen_string_literal: true

module Heddle
  class Simulation
    # A listening socket of the code under test. It is readable while there are connections to accept: its descriptor is
    # an end of a pair, which has a byte to read then.
    class Listener
      # @param side [Connection::Side]
      # @param backlog [Integer] how many connections may wait to be accepted
      # @param socket_class [Class] of accepted sockets
      def initialize(side, backlog, socket_class)
        @side, @backlog, @socket_class = side, [backlog, 1].max, socket_class
        @waiting = []
      end

      # @return [Boolean] whether its socket is closed
      def closed? = @side.closed?

      # @return [Boolean] whether it takes no connection now
      def full? = @waiting.size >= @backlog

      # @param socket [BasicSocket] a connected one
      # @param remote [Addrinfo]
      # @param connection [Connection]
      def push(socket, remote, connection)
        @side.far.write_nonblock(".") if @waiting.empty?
        @waiting << [socket, remote, connection]
      end

      # @param server [BasicSocket] its socket
      # @return [Array(BasicSocket, Addrinfo), nil] a connection
      def take(server)
        return if @waiting.empty?

        server.read_nonblock(1) if @waiting.one?
        socket, remote, = @waiting.shift
        socket.autoclose = false
        [@socket_class.for_fd(socket.fileno), remote]
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

      # Resets the connections that nobody has accepted, as a system does when their server's socket is closed.
      def refuse
        @waiting.each do |socket, _, connection|
          connection.reset_both
          socket.close
        end
        @waiting.clear
      end
    end
    private_constant :Listener
  end
end
