# frozen_string_literal: true

module Heddle
  module Compat
    # Connecting to a name: Ruby 3.4 and later do it in C and ask no scheduler, so that all tasks stand still for the look-up
    # and until an address answers (https://bugs.ruby-lang.org/issues/21270); before, one address is tried after another,
    # each for as long as the timeout allows, and the look-up has no bound. Here all addresses are raced, as RFC 8305 has it,
    # and only the calling task waits. The methods are in C: ext/heddle/names/connect.c and connect_race.c; this is what Ruby's
    # versions say when it fails.
    #
    # @api private
    module Connect
      # What Ruby calls the look-up in its errors.
      LOOK_UP = (RUBY_VERSION < "3.4") ? "getaddrinfo" : "getaddrinfo(3)"

      # Ruby >= 3.2 says so when the kernel gives up connecting a TCPSocket.
      TIMED_OUT = defined?(IO::TimeoutError) ? IO::TimeoutError : Errno::ETIMEDOUT
      private_constant :LOOK_UP, :TIMED_OUT

      class << self
        # Whether sockets of this class are made by TCPSocket's own initialize, which is what we do in its place.
        def plain?(tcp_class)
          initialize_method = tcp_class.instance_method(:initialize)
          initialize_method.owner.equal?(::TCPSocket) && initialize_method.source_location.nil?
        end

        # @return [String] how an error of the look-up begins
        def look_up(socket_class)
          socket_class.equal?(::Socket) ? "getaddrinfo" : LOOK_UP
        end

        # @return [Exception] what the running Ruby would raise
        def failure(socket_class, kind, errno, call, host, port, address, attempts)
          general = socket_class.equal?(::Socket)
          case kind
          when :no_local then SocketError.new("no appropriate local address")
          when :timeout then general ? Errno::ETIMEDOUT.new("user specified timeout") : timeout(host, port, attempts)
          else
            return SystemCallError.new("#{call} for #{address}", errno) if general

            text = "#{call} for #{host.inspect} port #{port}"
            (errno == Errno::ETIMEDOUT::Errno) ? TIMED_OUT.new(text) : SystemCallError.new(text, errno)
          end
        end

        # Connects in a thread of its own, which another's scheduler waits for as for any thread.
        # @param socket_class [Class] TCPSocket or Socket
        # @param method [Symbol] open or tcp
        # @return [TCPSocket, Socket]
        def in_a_thread(socket_class, method, ...)
          socket = taken = nil
          thread = Thread.new do
            Thread.current.report_on_exception = false
            claim_next
            socket = socket_class.public_send(method, ...)
          end
          thread.join
          taken = socket
        ensure
          unless taken # its time is over, or nobody wants it any more
            thread&.kill
            socket&.close
          end
        end

        private

        def timeout(host, port, attempts)
          return TIMED_OUT.new("connect(2) for #{host.inspect} port #{port}") if RUBY_VERSION < "3.4"

          (attempts == 1) ? TIMED_OUT.new("Connect timed out!") : Errno::ETIMEDOUT.new("user specified timeout")
        end
      end

      # On the classes themselves and not in front of them: a method that somebody defines on the class later, such as a
      # test's stub, would be passed over, and one that was aliased meanwhile would call itself for ever.
      [[::TCPSocket, TCPClass], [::Socket, SocketClass]].each do |socket_class, methods|
        singleton = socket_class.singleton_class
        methods.instance_methods.each do |name|
          own = singleton.instance_method(name)
          own = own.super_method until own.nil? || own.owner.equal?(singleton) # others may have prepended theirs
          singleton.define_method(:"#{name}_without_heddle", own) if own
          singleton.define_method(name, methods.instance_method(name))
        end
      end
    end
  end
end
