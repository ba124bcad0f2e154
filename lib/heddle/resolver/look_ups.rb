# frozen_string_literal: true

module Heddle
  module Resolver
    # Look-ups of a host and a port. Where a scheduler's hook resolves the host, Ruby (until 4.0 at least) takes a
    # service's name for an unknown host, leaves the canonical name out, and raises other errors. Look-ups with such
    # arguments are Ruby's own, on a thread; those of a numeric host need no hook.
    module LookUps
      NUMERIC_HOST = /\A\d+\.\d+\.\d+\.\d+\z|:/
      # Flags that the hook's addresses do not depend on.
      SIMPLE = Socket::AI_PASSIVE | Socket::AI_ADDRCONFIG | Socket::AI_NUMERICHOST | Socket::AI_NUMERICSERV
      private_constant :NUMERIC_HOST, :SIMPLE

      # For Addrinfo and Socket.
      module Lists
        def getaddrinfo(host, service, family = nil, socktype = nil, protocol = nil, flags = nil, *rest, **options)
          return super unless host.is_a?(String) && LookUps.in_task?
          if host.match?(NUMERIC_HOST)
            return super(host, service, family, socktype, protocol, (flags || 0) | Socket::AI_NUMERICHOST, *rest,
              **options)
          end
          return super if LookUps.number?(service) && ((flags || 0) & ~SIMPLE).zero? && rest.compact.empty?

          LookUps.on_a_thread { super }
        end
      end

      # For Addrinfo.
      module Information
        def tcp(host, service) = (LookUps.number?(service) || !LookUps.in_task?) ? super : LookUps.on_a_thread { super }

        def udp(host, service) = (LookUps.number?(service) || !LookUps.in_task?) ? super : LookUps.on_a_thread { super }
      end

      # For Socket.
      module Addresses
        def sockaddr_in(port, host) = super(LookUps.port(port, nil), host)

        def pack_sockaddr_in(port, host) = super(LookUps.port(port, nil), host)
      end

      # For UDPSocket.
      module Datagrams
        def bind(host, port) = bind_without_heddle(host, LookUps.port(port, :DGRAM))

        def connect(host, port) = connect_without_heddle(host, LookUps.port(port, :DGRAM))

        def send(message, flags, *target)
          target[1] = LookUps.port(target[1], :DGRAM) if target.size == 2
          send_without_heddle(message, flags, *target)
        end
      end

      # For TCPServer.
      module Server
        def initialize(*host, port) = initialize_without_heddle(*host, LookUps.port(port, :STREAM))
      end

      class << self
        def in_task? = Fiber.current_scheduler.is_a?(Loop)

        def on_a_thread
          thread = Thread.new do
            Thread.current.report_on_exception = false
            yield
          end
          thread.value
        end

        # Whether the hook's addresses and this port make the result.
        def number?(service)
          case service
          when Integer then service.between?(0, 65_535)
          when String then service.match?(/\A\d{1,4}\z/)
          else service.nil?
          end
        end

        # @return [Integer, String, nil] the service's number in a task; the service itself elsewhere
        # @raise [SocketError] as Ruby does
        def port(service, socktype)
          return service if number?(service) || !in_task?

          Addrinfo.getaddrinfo("127.0.0.1", service, nil, socktype).first.ip_port
        end
      end

      ::Addrinfo.singleton_class.prepend(Lists, Information)
      ::Socket.singleton_class.prepend(Lists, Addresses)
      # Defined on the classes themselves, not prepended: resolv-replace saves such methods under other names, and a
      # prepended method saved so would call itself for ever.
      {::UDPSocket => Datagrams, ::TCPServer => Server}.each do |socket_class, methods|
        (methods.instance_methods(false) + methods.private_instance_methods(false)).each do |name|
          socket_class.alias_method(:"#{name}_without_heddle", name)
          socket_class.define_method(name, methods.instance_method(name))
        end
      end
    end
  end
end
