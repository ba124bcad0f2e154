# frozen_string_literal: true

module Heddle
  class Simulation
    # UDP: a datagram arrives late, before others that were sent earlier, or not at all.
    class Datagrams
      # A socket of the code under test, which is an end of a pair. `sources` has the senders of what waits in it.
      Side = Struct.new(:far, :local, :remote, :sources) do
        # @return [Hash] what was set of IP and UDP, by level and name
        def options = @options ||= {}

        # @param peek [Boolean] whether the datagram stays
        # @return [Addrinfo] where the datagram came from that was just read
        def source(peek) = peek ? sources.first : sources.shift
      end

      # @param world [World]
      # @param network [Network]
      def initialize(world, network)
        @world, @network = world, network
        @sides = {}
        @sent = 0
      end

      # @return [Socket] one that the caller makes its own
      def open
        near, far = ::Socket.pair(:UNIX, :DGRAM)
        @sides[Core.inode(near.fileno)] = Side.new(far, nil, nil, [])
        near
      end

      # @return [Side, nil]
      def side(inode) = @sides[inode]

      # @param address [Addrinfo]
      # @raise [Errno::EADDRINUSE]
      def bind(side, address)
        address = Addrinfo.udp(address.ip_address, @network.free_port) if address.ip_port.zero?
        raise Errno::EADDRINUSE, address.inspect_sockaddr if @network.own.datagrams(address.ip_port)

        side.local = Addrinfo.udp(address.ip_address, address.ip_port)
        @network.own.udp(address.ip_port) do |bytes, from|
          deliver(side, bytes, from)
          nil
        end
      end

      # Where `write` sends to from now on.
      #
      # @param address [Addrinfo]
      def connect(side, address)
        bind(side, @network.local_for(address)) unless side.local
        @world.start { forward(side) } unless side.remote
        side.remote = address
      end

      # @param address [Addrinfo]
      def send(side, bytes, address)
        bind(side, @network.local_for(address)) unless side.local
        host = @network.host_at(address) or return
        faults = @world.faults_of("#{address.inspect_sockaddr} udp ##{@sent += 1}")
        @world.start do
          next unless passes?(host, bytes, faults) && (service = host.datagrams(address.ip_port))

          answer = service.call(bytes, side.local)
          deliver(side, answer, address) if answer && passes?(host, answer, faults)
        end
      end

      # The side's socket is closed.
      def remove(side)
        @sides.delete_if { |_, other| other.equal?(side) }
        @network.own.remove_datagrams(side.local.ip_port) if side.local
        side.far.close
      end

      # Closes what the world has of its sockets.
      def close
        @sides.each_value { |side| side.far.close }
      end

      private

      # Waits until it arrives, or is lost.
      def passes?(host, bytes, faults)
        faults.next
        return false if host.parted || !(delay = host.link.delay_of_datagram(bytes.bytesize, faults))

        sleep(delay / 1e9)
        !host.parted
      end

      def deliver(side, bytes, from)
        return if side.far.closed?
        return if side.far.sendmsg_nonblock(bytes, exception: false) == :wait_writable # full: it is dropped

        side.sources << from
        @world.note { "#{from.inspect_sockaddr} udp #{bytes.bytesize} bytes" }
      rescue SystemCallError
        nil # closed, by the garbage collector
      end

      def forward(side)
        loop { send(side, side.far.recv(65_536), side.remote) }
      rescue IOError
        nil # closed
      end
    end
    private_constant :Datagrams
  end
end
