# frozen_string_literal: true

require_relative "connection"
require_relative "datagrams"
require_relative "listener"

module Heddle
  class Simulation
    # The hosts, and the computer that the code under test runs on: who serves which address, and how sockets connect.
    class Network
      FIRST_PORT = 49_152 # RFC 6335
      LAST_PORT = 65_535
      UNREACHABLE = 3.0   # seconds until a router says so
      SYN_RETRIES = [1, 2, 4, 8, 16, 32, 64].freeze # seconds between Linux's tries to connect
      OWN = {Socket::AF_INET => "10.255.0.1", Socket::AF_INET6 => "fd00::1"}.freeze # of the code under test
      LOOPBACK = %w[127.0.0.1 ::1].freeze
      private_constant :FIRST_PORT, :LAST_PORT, :UNREACHABLE, :SYN_RETRIES, :OWN, :LOOPBACK

      # @return [Datagrams]
      attr_reader :datagrams
      # @return [Host] the computer of the code under test
      attr_reader :own

      # @param world [World]
      def initialize(world)
        @world = world
        @hosts, @served, @sides, @listeners = {}, {}, {}, {}
        @accepted = {}.compare_by_identity # the hosts' sockets
        @own = Host.new("localhost", LOOPBACK + OWN.values)
        @own.link = Link.new(latency: 0.00002)
        @own.addresses.each { |address| @served[address] = @own }
        @datagrams = Datagrams.new(world, self)
        @port = FIRST_PORT
        @opened = 0
      end

      # @return [Host]
      def add(name, addresses)
        Check.name(name)
        addresses = addresses.empty? ? [free_address] : addresses.map { |address| Check.address(address) }
        host = @hosts[name] = Host.new(name, addresses)
        addresses.each { |address| @served[address] = host }
        host
      end

      # @return [Host]
      # @raise [ArgumentError]
      def host(name)
        @hosts.fetch(name) { raise ArgumentError, "the world has no host #{name.inspect}: call world.host first" }
      end

      # @param address [Addrinfo]
      # @return [Host, nil] whose address it is
      def host_at(address) = address.unix? ? @own : @served[address.ip_address]

      # @return [Integer] a port that nobody uses
      def free_port
        loop do
          @port = (@port == LAST_PORT) ? FIRST_PORT : @port + 1
          return @port unless @own.serves?(@port) || @own.datagrams(@port)
        end
      end

      # @param remote [Addrinfo]
      # @return [Addrinfo] the own end of a connection to there
      def local_for(remote)
        return Addrinfo.unix("") if remote.unix?
        return Addrinfo.tcp(remote.ip_address, free_port) if LOOPBACK.include?(remote.ip_address)

        Addrinfo.tcp(OWN.fetch(remote.afamily), free_port)
      end

      # @return [Connection::Side, nil]
      def side(inode) = @sides[inode]

      # Begins to connect.
      #
      # @param sockaddr [String]
      # @return [Integer] an errno
      def connect(descriptor, sockaddr)
        remote = Addrinfo.new(sockaddr)
        bound = @sides.delete(Core.inode(descriptor))
        bound&.far&.close
        side = side_on(descriptor, bound&.local || local_for(remote), remote)
        @world.start { establish(side) }
        Errno::EINPROGRESS::Errno
      end

      # @return [Integer] an errno, or 0
      def connect_error(descriptor) = @sides[Core.inode(descriptor)]&.error || 0

      # @param address [Addrinfo]
      # @raise [Errno::EADDRINUSE]
      def bind(descriptor, address)
        raise Errno::EADDRINUSE, address.inspect_sockaddr if @own.serves?(Network.place(address))

        address = Addrinfo.tcp(address.ip_address, free_port) if address.ip? && address.ip_port.zero?
        side = side_on(descriptor, address, nil)
        nil while side.far.read_nonblock(1 << 16, exception: false).is_a?(String)
        @world.start { watch(side) }
      end

      # @param socket_class [Class] of accepted sockets
      def listen(descriptor, backlog, socket_class)
        bind(descriptor, Addrinfo.tcp("0.0.0.0", 0)) unless @sides[Core.inode(descriptor)]
        side = @sides.fetch(Core.inode(descriptor))
        @own.serve(Network.place(side.local), @listeners[side.inode] = Listener.new(side, backlog, socket_class))
      end

      # @return [Listener]
      # @raise [Errno::EINVAL] the socket does not listen
      def listener(io) = @listeners.fetch(Core.inode(io.fileno)) { raise Errno::EINVAL, "accept(2)" }

      # The side's socket gets ECONNRESET, as when the other end of a pair is closed with unread bytes.
      def reset(side)
        return if side.far.closed?

        begin
          own = IO.for_fd(side.descriptor, "r+", autoclose: false)
          own.write_nonblock("x", exception: false) if Core.inode(side.descriptor) == side.inode
        rescue SystemCallError, IOError
          nil # closed by the program, or its other direction is
        end
        side.far.close
      end

      # The connection of this side is over.
      def remove(side)
        side.far.close
        @sides.delete(side.inode)
      end

      # Closes what the world has of its connections.
      def close
        @listeners.each_value(&:refuse)
        @sides.each_value { |side| side.far.close }
        @accepted.each_key(&:close) # the world ended before their servers began
      end

      # @param address [Addrinfo]
      # @return [Integer, String] what a host's services are kept by: the port, or the path
      def self.place(address) = address.unix? ? address.unix_path : address.ip_port

      private

      # @return [String] an address that no host has
      def free_address
        (0..).each do |number|
          address = "10.0.#{number / 250}.#{(number % 250) + 1}"
          return address unless @served.key?(address)
        end
      end

      def side_on(descriptor, local, remote)
        far = UNIXSocket.for_fd(Core.replace(descriptor))
        side = Connection::Side.new(far, descriptor, Core.inode(descriptor), local, remote)
        @sides[side.inode] = side
      end

      # Waits until a socket that has an address is closed.
      def watch(side)
        side.far.wait_readable until side.closed?
        @listeners.delete(side.inode)&.refuse
        remove(side)
      rescue IOError # it connects: another pair has taken this one's place
        nil
      end

      def establish(side)
        host = host_at(side.remote)
        name = "#{side.remote.inspect_sockaddr} ##{@opened += 1}"
        error = host ? outcome(host, side.remote, @world.faults_of(name)) : unreachable
        @world.note { "#{name} #{error ? error.name : "connected"}" }
        return fail(side, error) if error

        side.connected = true
        return if drain(side.far)

        accept(host, name, side)
      end

      def unreachable
        sleep(UNREACHABLE)
        Errno::EHOSTUNREACH
      end

      # @return [Class, nil] the error
      def outcome(host, address, faults)
        place = Network.place(address)
        SYN_RETRIES.each do |seconds|
          delay = handshake(host.link, faults) unless host.parted || host.full?(place)
          next sleep(seconds) unless delay

          sleep(delay / 1e9)
          return host.serves?(place) ? nil : refusal(address)
        end
        Errno::ETIMEDOUT
      end

      def refusal(address) = address.unix? ? Errno::ENOENT : Errno::ECONNREFUSED

      def handshake(link, faults)
        delays = Array.new(2) { faults.next && link.delay(faults) }
        delays.sum if delays.all?
      end

      def fail(side, error)
        side.error = error::Errno
        side.far.close # with unread bytes: the socket is ready, with an error
      end

      # Takes what made the socket unwritable. Returns whether it is closed already.
      def drain(far)
        nil while (bytes = far.read_nonblock(1 << 16, exception: false)).is_a?(String)
        far.close if bytes.nil?
        bytes.nil?
      end

      def accept(host, name, near)
        service = host.service(Network.place(near.remote))
        own, far = UNIXSocket.pair
        away = Connection::Side.new(far, own.fileno, Core.inode(own.fileno), near.remote, near.local)
        @sides[away.inode] = away
        connection = Connection.new(@world, host, name, near, away)
        connection.open
        return service.push(own, near.local, connection) if service.is_a?(Listener)

        own.autoclose = false
        socket = (near.remote.unix? ? UNIXSocket : TCPSocket).for_fd(own.fileno)
        @accepted[socket] = true
        @world.start { serve(socket, service, name) }
      end

      def serve(socket, service, name)
        service.call(socket)
      rescue SystemCallError, IOError => error
        @world.note { "#{name} server: #{error.class}" }
      ensure
        socket.close
        @accepted.delete(socket)
      end
    end
    private_constant :Network
  end
end
