# frozen_string_literal: true

module Heddle
  module Resolver
    # Names of addresses: no Ruby has a hook for getnameinfo, so all tasks stand still until a name server answers. This
    # patch asks in a native thread, and only the calling task waits.
    module AddressNames
      # For Socket.
      module SocketClass
        def getnameinfo(address, flags = 0)
          scheduler = Fiber.current_scheduler
          return super unless scheduler.is_a?(Loop)

          if address.respond_to?(:to_ary) # what IPSocket#addr gives: family, port, name, address
            family, port, name, number = list = address.to_ary
            return super unless list.size.between?(3, 4)

            address = Addrinfo.getaddrinfo(number || name, port, family, :STREAM).first
          end
          address = address.to_sockaddr if address.is_a?(Addrinfo)
          return super unless address.respond_to?(:to_str) && Addrinfo.new(address).ip?

          scheduler.address_name(address, flags)
        end
      end

      # For Addrinfo.
      module Information
        def getnameinfo(flags = 0)
          scheduler = Fiber.current_scheduler
          return super unless ip? && scheduler.is_a?(Loop)

          flags |= Socket::NI_DGRAM if socktype == Socket::SOCK_DGRAM

          scheduler.address_name(to_sockaddr, flags)
        end
      end

      # For IPSocket: looks names up by default only if do_not_reverse_lookup is false.
      module Peers
        def addr(reverse_lookup = nil)
          AddressNames.named(self, :local_address, reverse_lookup) { |numeric| super(numeric) }
        end

        def peeraddr(reverse_lookup = nil)
          AddressNames.named(self, :remote_address, reverse_lookup) { |numeric| super(numeric) }
        end
      end

      # The result of IPSocket#addr and #peeraddr, with the name in place of the number if wanted and known.
      #
      # @param whose [Symbol] the method of the socket that tells the address
      def self.named(socket, whose, wanted)
        scheduler = Fiber.current_scheduler
        reverse = wanted.nil? ? !socket.do_not_reverse_lookup : [true, :hostname].include?(wanted)
        return yield(wanted) unless reverse && scheduler.is_a?(Loop)

        answer = yield(:numeric)
        begin
          answer[2] = scheduler.address_name(socket.public_send(whose).to_sockaddr, 0).first
        rescue SocketError
          nil # Ruby leaves the number, too
        end
        answer
      end

      ::Socket.singleton_class.prepend(SocketClass)
      ::Addrinfo.prepend(Information)
      ::IPSocket.prepend(Peers)
    end
  end
end
