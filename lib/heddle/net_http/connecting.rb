# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP#connect` without TLS: to an address with a poll that knows when to end, instead of a timer around it; to a
    # name within one deadline, which bounds the look-up, too. What fails is left to stock to report. With TLS, or from an address
    # of its own, stock connects, and open_timeout bounds the look-up all the same.
    #
    # @api private
    module Connecting
      @judged = {}
      @by_socket = {}

      class << self
        def define(front, http, space)
          front.define_method(:connect) do
            unless Library.fast?(self)
              kept = Aliases.kept(self, :connect)
              return kept ? kept.bind_call(self) : super()
            end

            klass, opener = Connecting.opens_by_socket?(http) ? [::Socket, :tcp] : [::TCPSocket, :open]
            if @debug_output || @local_host || @local_port || use_ssl? || !Connecting.shipped?(klass, opener)
              return Connecting.bounded(@open_timeout) { super() }
            end

            address, port = proxy? ? [proxy_address, proxy_port] : [conn_address, self.port]
            complete = false
            begin
              socket = Library.connect(klass, address, port, @open_timeout)
              return Connecting.bounded(@open_timeout) { super() } if socket.nil?
              raise space::OpenTimeout, Connecting.late(address, port, klass) unless socket
              Connecting.fail_as_stock(socket, klass, address, port, http, space) if socket.is_a?(Integer)

              @socket = Connecting.buffered_io(http, space).new(socket, read_timeout: @read_timeout, write_timeout: @write_timeout,
                continue_timeout: @continue_timeout, debug_output: @debug_output)
              @last_communicated = nil
              on_connect
              complete = true
            ensure
              socket.close if socket.is_a?(IO) && !complete # also for what is no StandardError: a timeout, a cancel
            end
          end
          front.send(:private, :connect)
        end

        # What the library's own connect would find now: another thread may be switching.
        def buffered_io(http, space)
          http.const_get(:BufferedIO, false)
        rescue NameError
          space::BufferedIO
        end

        # net-http before 0.2.1 connects by Socket.tcp, later ones by TCPSocket.open.
        def opens_by_socket?(http)
          @by_socket.fetch(http) { @by_socket[http] = (version(http) <=> [0, 2, 1]) < 0 }
        end

        def late(address, port, klass)
          why = (klass == ::Socket) ? "Connection timed out - user specified timeout" : "execution expired"
          "Failed to open TCP connection to #{address}:#{port} (#{why})"
        end

        # What was waited for once, to try again would be to wait for a second time.
        def fail_as_stock(errno, klass, address, port, http, space)
          error = Compat::Connect.failure(klass, :call, errno, "connect(2)", address, port, Addrinfo.tcp(address, port).inspect_sockaddr, 1)
          error = space::OpenTimeout.new(error) if late_errors(http).any? { |late| error.is_a?(late) }
          raise error, "Failed to open TCP connection to #{address}:#{port} (#{error.message})"
        end

        # One limit for the look-up and all addresses; under a scheduler that is not ours also where there is none, for others to go on.
        def bounded(seconds, &block)
          scheduler = Fiber.current_scheduler
          (seconds || (scheduler && !scheduler.is_a?(Scheduler))) ? Library.with_bounded_look_up(&block) : yield
        end

        # Whether TCPSocket.open or Socket.tcp are Ruby's own, or ours: a program that has put something in their place, as
        # tests do, wants to be asked. Guards against private addresses, SOCKS and others' resolvers sit in initialize. Looked
        # at each time, judged only where one is another than last time.
        def shipped?(klass, name)
          opener, maker = klass.method(name), klass.instance_method(:initialize)
          newer = klass.method(:new) if name == :tcp # which calls it; TCPSocket.open does not
          known = @judged[klass]
          return known[3] if known && known[0] == opener && known[1] == maker && known[2] == newer

          as_shipped = [opener, maker, newer].compact.all? { |method| own?(klass, method) }
          @judged[klass] = [opener, maker, newer, as_shipped].freeze
          as_shipped
        end

        # The file of Ruby's own methods of sockets that are not in C.
        def socket_library
          @socket_library ||= ::Socket.instance_method(:ipv6only!).source_location.first
        end

        private

        def version(http) = http::VERSION.split(".").map(&:to_i)

        # What the library makes an OpenTimeout of: nothing from 0.2.1 to 0.7.
        def late_errors(http)
          return [] if !opens_by_socket?(http) && (version(http) <=> [0, 8, 0]) < 0

          newer = (version(http) <=> [0, 9, 1]) >= 0 && defined?(IO::TimeoutError)
          newer ? [Errno::ETIMEDOUT, IO::TimeoutError] : [Errno::ETIMEDOUT]
        end

        def own?(klass, method)
          file = method.source_location&.first
          [klass, klass.singleton_class, IO.singleton_class].include?(method.owner) && (file.nil? || file == socket_library)
        end
      end
    end
    private_constant :Connecting
  end
end
