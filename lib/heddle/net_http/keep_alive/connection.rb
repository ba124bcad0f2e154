# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # A connection that may outlive its session. Belongs to one session, or to the {Store}; never to both. A struct in
      # C (ext/heddle/net_http/net_http_connection.c), which has these methods:
      #
      # - `new(key, io, now, exchanging)`: of a session that has connected now, before an exchange or in the middle of
      #   one
      # - `key`, `io`: what it was made with
      # - `awaiting`: true, or the session, from when a session takes it until an answer begins; then false. The C code
      #   ends this, and then gives the session its retries back.
      # - `rest(now, seconds)`: the answer has been read to its end, and nothing else may come; the server will wait for
      #   another request for so many seconds, at least
      # - `doubt`: the same, unless the server still waits for a body that it expected: the next exchange will tell
      # - `bind`: never kept, whatever follows: it is bound to who uses it now
      # - `expires_at`: monotonic seconds at which it must be closed
      # - `jumped?(now)`: whether a clock has jumped since it began to rest: the machine was suspended, or a clock set.
      #   Servers and routers have then forgotten connections that look alive here.
      # - `named_at`, `named_at=`: monotonic seconds when its name was looked up
      class Connection
        # The most bytes that may have come between two requests: several session tickets.
        LOOK = 1 << 16
        # The look-up of a name took too long. Not for time limits of the program.
        LateLookUp = Class.new(Timeout::Error)
        private_constant :LOOK, :LateLookUp

        Library.define_connection(self)

        # @return [String] the server's name or address, as the program gave it
        def host = key.host

        # @return [String] the IP address that it is connected to
        def address = (@address ||= io.to_io.remote_address.ip_address)

        # Looks at the socket without waiting.
        #
        # @return [Boolean] whether the peer has neither sent anything nor closed
        def quiet?
          quiet = Library.quiet?(io)
          quiet.nil? ? quiet_tls? && !!Library.quiet?(io) : quiet
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          false
        end

        # Asks the filters in force, see {Heddle.connect_filter}.
        #
        # @param limit [Float, nil] seconds that they may take
        # @return [Boolean] whether this connection may be used again
        def allowed?(limit)
          return true if ConnectFilter.in_force.empty?

          peer = begin
            io.to_io.remote_address
          rescue SystemCallError, IOError
            return true # no connection any more, as {quiet?} will tell
          end
          ConnectFilter.refusal(peer, key.peer, limit).nil?
        end

        # Looks the peer's name up again once that is older than `seconds`.
        #
        # @param limit [Float, nil] seconds that the look-up may take
        # @return [Boolean] whether the name still has the address of this connection
        def at_home?(now, seconds, limit)
          return true if now - named_at <= seconds || key.peer == address

          found = Timeout.timeout(limit, LateLookUp) { Addrinfo.getaddrinfo(key.peer, nil, nil, :STREAM) }
          self.named_at = Clock.now
          found.any? { |one| one.ip_address == address }
        rescue SocketError, SystemCallError, IOError, LateLookUp
          false # a new connection will report what is wrong
        end

        # Over TLS this tells the peer, without waiting.
        def close
          io.close
        rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
          nil
        end

        # In a child of fork: says nothing to the peer, with whom the parent still talks.
        def abandon
          io.to_io.close
        rescue IOError, SystemCallError
          nil
        end

        private

        # Received bytes may be a session ticket, which belongs to no answer. Each record must be whole: OpenSSL would
        # keep a part of any other record in its own buffer, where nobody sees it.
        def quiet_tls? = whole_records? && io.read_nonblock(1, exception: false) == :wait_readable

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
