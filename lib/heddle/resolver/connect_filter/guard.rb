# frozen_string_literal: true

module Heddle
  module ConnectFilter
    # Asks the filters in the methods of Ruby's socket classes that connect. They are methods in C
    # (ext/heddle/resolver/connect_filter.c), which call these functions if a filter is in force. Connects that Heddle
    # makes itself ask in the race of the addresses (ext/heddle/resolver/connect.c).
    #
    # What is connected to is always the address that was checked: Ruby's own method gets the number, never the name.
    #
    # @api private
    module Guard
      # The errors after which the next address of the host is tried.
      FAILURES = [SystemCallError, (IO::TimeoutError if defined?(IO::TimeoutError))].compact.freeze
      private_constant :FAILURES

      class << self
        # TCPSocket#initialize
        def tcp_socket(socket, host, port, *local, **options)
          each_allowed(host, port, options) do |address, rest|
            socket.__send__(:initialize_without_filter, address.ip_address, address.ip_port, *local, **rest)
          end
        end

        # Socket.tcp without a block. Its connect would ask again, without knowing the host.
        def socket_tcp(klass, method, host, port, *local, **options)
          each_allowed(host, port, options) do |address, rest|
            ConnectFilter.within(false) do
              klass.__send__(method, address.ip_address, address.ip_port, *local, **rest)
            end
          end
        end

        # UDPSocket#connect
        def udp_connect(socket, host, port)
          each_allowed(host, port, {}, socket.local_address.afamily, :DGRAM) do |address|
            socket.connect_without_filter(address.ip_address, address.ip_port)
          end
        end

        # UNIXSocket#initialize
        def unix_socket(socket, path)
          path = (path.is_a?(String) ? path : File.path(path)).dup.freeze # an abstract path has a NUL
          check(Addrinfo.unix(path), path)
          socket.__send__(:initialize_without_filter, path)
        end

        # Socket#connect and #connect_nonblock
        # @return [String] the checked address, which no other code can change
        def socket_connect(_socket, address)
          bytes = (address.is_a?(Addrinfo) ? address.to_sockaddr : String(address)).dup.freeze
          address = Addrinfo.new(bytes)
          check(address, text(address))
          bytes
        end

        # @return [String] the host of a connect to an address: the number, or the path
        def text(address)
          return address.ip_address if address.ip?

          address.unix? ? address.unix_path : address.inspect_sockaddr
        end

        # Keeps Ruby's methods under another name, and defines ours in their place. A library that replaced a method
        # earlier (resolv-replace, socksify) has saved Ruby's under a name of its own, where it is replaced as well.
        def install(klass, name, kept, methods)
          original = own_names(klass, name).first
          return unless original

          klass.alias_method(kept, original)
          klass.send(:private, kept) if klass.private_method_defined?(original)
          (own_names(klass, name) - [kept]).each do |found|
            hidden = klass.private_method_defined?(found)
            klass.define_method(found, methods.instance_method(name))
            klass.send(:private, found) if hidden
          end
        end

        private

        # The names of the class for its method in C.
        def own_names(klass, name)
          (klass.instance_methods(false) + klass.private_instance_methods(false)).select do |found|
            method = klass.instance_method(found)
            method.original_name == name && method.owner.equal?(klass) && method.source_location.nil?
          end
        end

        def check(address, host)
          refusal = ConnectFilter.refusal(address, host)
          raise refusal if refusal
        end

        # Calls the block with one allowed address of the host after another, until it returns, and with the options
        # that are left. Their time limit `open_timeout` is one for all addresses.
        def each_allowed(host, port, options, family = nil, type = :STREAM)
          host = host.to_str.dup.freeze if host.respond_to?(:to_str)
          limit = options[:open_timeout]
          ends = limit && Clock.now + limit
          refusal = failure = nil
          look_up(host, port, family, type, limit || options[:resolv_timeout]).each do |address|
            options = options.merge(open_timeout: [ends - Clock.now, 0.001].max) if ends
            seconds = options[:open_timeout] || options[:connect_timeout]
            if (refused = ConnectFilter.refusal(address, host.is_a?(String) ? host : address.ip_address, seconds))
              refusal ||= refused
              next
            end
            return yield(address, options)
          rescue *FAILURES => error
            failure = error
          end
          raise failure || refusal
        end

        def look_up(host, port, family, type, seconds)
          Addrinfo.getaddrinfo(host, port, family, type, **(seconds ? {timeout: seconds} : {}))
        end
      end

      install(::TCPSocket, :initialize, :initialize_without_filter, Methods::TCPSocket)
      install(::UNIXSocket, :initialize, :initialize_without_filter, Methods::UNIXSocket)
      install(::UDPSocket, :connect, :connect_without_filter, Methods::UDPSocket)
      install(::Socket, :connect, :connect_without_filter, Methods::Socket)
      install(::Socket, :__connect_nonblock, :__connect_nonblock_without_filter, Methods::Socket)
    end
    private_constant :Guard
  end
end
