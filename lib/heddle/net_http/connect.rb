# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#connect`. A connect to an address without TLS takes one poll with a limit, instead of a timer around
    # the connect. In all other cases, and to report an error, the library connects, and open_timeout bounds the look-up
    # of the name, too.
    #
    # @api private
    module Connect
      # Copied to the class. `def`, because other Ractors cannot call methods made of a block.
      module Methods
        def connect
          # Net::HTTP takes DeadlineExceeded for a timeout of the request itself, and connects again to repeat that: it
          # would send the request again before the next wait fails.
          Heddle.refuse_late if @socket
          if (keeps = KeepAlive.keeps?(self))
            KeepAlive.lost(@socket) if @socket
            resumed = @socket ? nil : KeepAlive.resume(self, @address, @port, @keep_alive_timeout, @read_timeout,
              @write_timeout, @continue_timeout)
            return if resumed
          end
          if keeps && (key = KeepAlive.key(self))
            return if resumed.nil? && KeepAlive.take(self, key)

            session = KeepAlive.offer_session(self, key)
          end
          http = Library.http_of(self, :transport)
          if !http || !Connect.handles?(@open_timeout)
            connect_without_heddle
          elsif @debug_output || @local_host || @local_port || use_ssl? || !Connect.unpatched?(http) ||
              !Connect.directly(self, http, @open_timeout) { |socket|
                @socket = Connect.buffered(self, socket)
                @last_communicated = nil
                on_connect
              }
            Connect.bounded(@open_timeout) { connect_without_heddle }
          end
          KeepAlive.opened(self, key, session) if key
        end
        private :connect
      end

      @spaces = {}.compare_by_identity
      @judged = {}.compare_by_identity
      @by_socket = {}.compare_by_identity

      class << self
        # @return [Hash{Class => Module}] by the class Net::HTTP, the module in which it stands (Net, or a copy's)
        attr_reader :spaces

        # How the installed version opens a socket: net-http before 0.2.1 by Socket.tcp, later ones by TCPSocket.open.
        #
        # @return [Array(Class, Symbol)]
        def opener(http) = opens_by_socket?(http) ? [::Socket, :tcp] : [::TCPSocket, :open]

        # Connects to an address by one poll with a limit, and yields the socket.
        #
        # @return [Boolean] false: the library has to connect, or to report why that fails
        def directly(session, http, seconds)
          klass = opener(http).first
          names = session.proxy? ? %i[proxy_address proxy_port] : %i[conn_address port]
          address, port = names.map { |name| session.__send__(name) }
          socket = connect(klass, address, port, seconds)
          return false if socket.nil?

          space = spaces[http]
          fail_late(klass, address, port, http, space) unless socket
          fail_as_stock(socket, klass, address, port, http, space) if socket.is_a?(Integer)
          yield socket
          complete = true
        ensure
          # A rescue of StandardError would miss timeouts and cancels.
          socket.close if socket.is_a?(IO) && !complete
        end

        # How the library takes 0, less, or no number depends on the versions of Ruby and the library.
        def handles?(seconds) = seconds.nil? || ((Float === seconds || Integer === seconds) && seconds.positive?)

        # With the cause that the library's error has.
        def fail_late(klass, address, port, http, space)
          cause = late_cause(klass, address, port, http)
          why = cause ? cause.message : "execution expired"
          raise space::OpenTimeout, "Failed to open TCP connection to #{address}:#{port} (#{why})", cause: cause
        end

        # The library would wait for a second time before it raised the same error.
        def fail_as_stock(errno, klass, address, port, http, space)
          socket_address = Addrinfo.tcp(address, port).inspect_sockaddr
          error = Resolver::Connect.failure(klass, :call, errno, "connect(2)", address, port, socket_address, 1)
          error = space::OpenTimeout.new(error) if late_errors(http).any? { |late| error.is_a?(late) }
          raise error, "Failed to open TCP connection to #{address}:#{port} (#{error.message})"
        end

        # One limit for the look-up and all addresses. Under another scheduler Heddle looks the name up even without a
        # limit, because Ruby's own look-up would stop the scheduler's other fibers.
        def bounded(seconds, &block)
          scheduler = Fiber.current_scheduler
          (seconds || (scheduler && !scheduler.is_a?(Loop))) ? with_bounded_look_up(&block) : yield
        end

        # Whether TCPSocket.open or Socket.tcp, and initialize, are Ruby's own or Heddle's. private_address_check,
        # socksify and resolv-replace override initialize; stubs override the others. Each connect compares the methods
        # with those of the last connect, and looks up where they come from only if one has changed.
        def unpatched?(http)
          klass, name = opener(http)
          opens, makes = klass.method(name), klass.instance_method(:initialize)
          newer = klass.method(:new) if name == :tcp # which calls it; TCPSocket.open does not
          known = @judged[klass]
          return known[3] if known && known[0] == opens && known[1] == makes && known[2] == newer

          owners = [klass, klass.singleton_class, IO.singleton_class]
          methods = [opens, makes, newer].compact
          unpatched = methods.all? { |method| PatchDetector.from?(method, owners, socket_library) }
          @judged[klass] = [opens, makes, newer, unpatched].freeze
          unpatched
        end

        # The file with those of Ruby's own socket methods that are not in C.
        def socket_library
          @socket_library ||= ::Socket.instance_method(:ipv6only!).source_location.first
        end

        private

        def opens_by_socket?(http)
          @by_socket.fetch(http) { @by_socket[http] = (version(http) <=> [0, 2, 1]) < 0 }
        end

        def version(http) = http::VERSION.split(".").map(&:to_i)

        # nil where the library uses Timeout.
        def late_cause(klass, address, port, http)
          return Errno::ETIMEDOUT.new("user specified timeout") if klass == ::Socket

          passes_on = :TCP_SOCKET_NEW_HAS_OPEN_TIMEOUT # a private constant
          return unless http.const_defined?(passes_on) && http.const_get(passes_on)

          IO::TimeoutError.new("user specified timeout for #{address}:#{port}")
        end

        # The errors that the library turns into an OpenTimeout: none from 0.2.1 to 0.7.
        def late_errors(http)
          return [] if !opens_by_socket?(http) && (version(http) <=> [0, 8, 0]) < 0

          newer = (version(http) <=> [0, 9, 1]) >= 0 && defined?(IO::TimeoutError)
          newer ? [Errno::ETIMEDOUT, IO::TimeoutError] : [Errno::ETIMEDOUT]
        end
      end
    end
    private_constant :Connect
  end
end
