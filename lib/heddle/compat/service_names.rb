# frozen_string_literal: true

module Heddle
  module Compat
    # Ports by the name of their service ("http"): if a scheduler's hook resolves the host, Ruby accepts only numbers,
    # and reports the host name as unknown (all Rubies until 4.0 at least). This patch turns the service into its number
    # first.
    module ServiceNames
      def getaddrinfo(host, service, family = nil, socktype = nil, *rest, **options)
        super(host, ServiceNames.port(host, service, socktype), family, socktype, *rest, **options)
      end

      # For Addrinfo only.
      module Information
        def tcp(host, service)
          super(host, ServiceNames.port(host, service, :STREAM))
        end

        def udp(host, service)
          super(host, ServiceNames.port(host, service, :DGRAM))
        end
      end

      # Returns the service's number under a {Scheduler}, if the service is known; otherwise the service itself.
      def self.port(host, service, socktype)
        return service unless service.is_a?(String) && host && !service.match?(/\A\s*[-+]?\d/)
        return service unless Fiber.current_scheduler.is_a?(Loop)

        Socket.getservbyname(service, [:DGRAM, "DGRAM", Socket::SOCK_DGRAM].include?(socktype) ? "udp" : "tcp")
      rescue SocketError
        service # Ruby says what is wrong
      end

      ::Addrinfo.singleton_class.prepend(self, Information)
      ::Socket.singleton_class.prepend(self)
    end
  end
end
