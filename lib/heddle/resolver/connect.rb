# frozen_string_literal: true

module Heddle
  module Resolver
    # Connects to names. Ruby 3.4 and later connect in C without calling the scheduler, so that all tasks stand still
    # during the look-up and until an address answers (https://bugs.ruby-lang.org/issues/21270). Earlier Rubies try one
    # address after another, each with the whole timeout, and do not bound the look-up. Heddle races all addresses, as
    # in RFC 8305, and only the calling task waits. The methods are in C: ext/heddle/resolver/connect.c and
    # connect_race.c. This file makes the errors of each version of Ruby.
    #
    # @api private
    module Connect
      # Ruby's name for the look-up in its error messages.
      LOOK_UP = (RUBY_VERSION < "3.4") ? "getaddrinfo" : "getaddrinfo(3)"

      # The message of Ruby >= 3.2 when the kernel gives up connecting a TCPSocket.
      TIMED_OUT = defined?(IO::TimeoutError) ? IO::TimeoutError : Errno::ETIMEDOUT
      private_constant :LOOK_UP, :TIMED_OUT

      class << self
        # Whether sockets of this class use TCPSocket's own initialize, which this patch replaces.
        def plain?(tcp_class)
          initialize_method = tcp_class.instance_method(:initialize)
          initialize_method.owner.equal?(::TCPSocket) && initialize_method.source_location.nil?
        end

        # @return [String] the start of a look-up's error message
        def look_up(socket_class)
          socket_class.equal?(::Socket) ? "getaddrinfo" : LOOK_UP
        end

        # @return [Exception] the error that the running Ruby would raise
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

        # Connects in a new thread, for which another scheduler can wait.
        # @param socket_class [Class] TCPSocket or Socket
        # @param method [Symbol] open or tcp
        # @return [TCPSocket, Socket]
        def in_a_thread(socket_class, method, ...)
          socket = taken = nil
          filters = ConnectFilter.nested
          thread = Thread.new do
            Thread.current.report_on_exception = false
            Thread.handle_interrupt(Object => :immediate) do # under the caller's mask nothing would end it
              claim_next
              socket = ConnectFilter.within_all(filters) { socket_class.public_send(method, ...) }
            end
          end
          thread.join
          taken = socket
        ensure
          unless taken # the time is over, or the caller was interrupted
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

      # Defined on the classes themselves, not prepended: a prepended method would hide a method that a program defines
      # on the class later, such as a test's stub, and an alias made meanwhile would call itself for ever.
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
