# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # A connection that may outlive its session. Belongs to one session, or to the {Store}; never to both. A struct in
      # C (ext/heddle/net_http/connection.c), which also has these methods:
      #
      # - `new(key, http)`: of a session that has connected now, before an exchange or in the middle of one
      # - `key`, `io`: that key, and the session's socket
      # - `unanswered?`: whether a session began with this persistent connection, and has had no answer yet
      # - `holds_retries?(http)`: whether that is this session, whose request KeepAlive repeats in place of the library
      # - `expires_at`: monotonic seconds at which it must be closed
      class Connection
        # The most bytes that may have come between two requests: several session tickets.
        LOOK = 1 << 16
        # The look-up of a name took too long. Not for time limits of the program.
        LateLookUp = Class.new(Timeout::Error)
        private_constant :LOOK, :LateLookUp

        # @return [String] the IP address that it is connected to
        def address = (@address ||= io.to_io.remote_address.ip_address)

        # Asks the filters in force, see {Heddle.connect_filter}.
        #
        # @param limit [Float, nil] seconds that they may take
        # @return [Boolean] whether this connection may be used again
        def allowed?(limit)
          return true if ConnectFilter.in_force.empty?

          peer = begin
            io.to_io.remote_address
          rescue SystemCallError, IOError
            return true # no connection any more, as a look at it will tell
          end
          ConnectFilter.refusal(peer, key.peer, limit).nil?
        end

        # Looks the peer's name up again.
        #
        # @param limit [Float, nil] seconds that the look-up may take
        # @return [Boolean] whether the name still has the address of this connection
        def at_home?(limit)
          return true if key.peer == address

          found = Timeout.timeout(limit, LateLookUp) { Addrinfo.getaddrinfo(key.peer, nil, nil, :STREAM) }
          found.any? { |one| one.ip_address == address }
        rescue SocketError, SystemCallError, IOError, LateLookUp
          false # a new connection will report what is wrong
        end

        # Bytes that come over TLS between two requests may be session tickets, which belong to no answer. Reads them.
        # Each record must be whole: OpenSSL would keep a part of any other record in its own buffer, where nobody sees
        # it.
        #
        # @return [Boolean] whether nothing else has come
        def only_tickets?
          whole_records? && io.read_nonblock(1, exception: false) == :wait_readable
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          false
        end

        # Over TLS this tells the peer, without waiting.
        def close
          io.close
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          nil
        end

        # In a child of fork: says nothing to the peer, with whom the parent still talks.
        def discard
          io.to_io.close
        rescue IOError, SystemCallError
          nil
        end

        private

        # Each record begins with a byte for its kind, two for the version, and two for the length of the rest.
        def whole_records?
          bytes = io.to_io.recv_nonblock(LOOK, Socket::MSG_PEEK, exception: false)
          return false unless bytes.is_a?(String)

          at = 0
          at += 5 + bytes.unpack1("n", offset: at + 3) while at + 5 <= bytes.bytesize
          at == bytes.bytesize
        end
      end
      private_constant :Connection
    end
  end
end
