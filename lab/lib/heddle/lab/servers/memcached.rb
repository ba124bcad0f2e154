# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      class Memcached < Server
        # @return [String, nil] the UNIX socket that it listens on instead
        attr_reader :path

        # @param port [Integer, nil] where to listen, as after a restart; nil: a free port
        # @param socket [Boolean] listens on a UNIX socket instead
        # @param tls [Array(#to_pem, #to_pem), nil] certificate and key
        # @param users [Hash{String => String}, nil] passwords by user
        # @param options [Array<String>] further options of memcached
        def initialize(port: nil, socket: false, tls: nil, users: nil, options: [])
          @wanted_port = port
          @socket = socket
          @tls = tls
          @users = users
          @options = options
        end

        private

        # memcached checks for other signals only once a second, and has nothing to save.
        def stop_signal = :KILL

        def check
          @server = program("memcached", package: "memcached")
        end

        def prepare
          @port = @wanted_port if @wanted_port
          @path = File.join(dir, "socket") if @socket
          if @tls
            write("certificate.pem", @tls.first.to_pem)
            write("key.pem", @tls.last.to_pem)
          end
          write("users", @users.map { |user, password| "#{user}:#{password}\n" }.join) if @users
        end

        def write(name, text) = File.write(File.join(dir, name), text)

        def command
          [@server, *(root? ? ["-u", "root"] : []), *where, "-m", "64", *tls_options,
            *(["-Y", File.join(dir, "users")] if @users), *@options]
        end

        def where
          @socket ? ["-s", path] : ["-l", host, "-p", port.to_s, "-U", "0"]
        end

        def tls_options
          return [] unless @tls

          ["-Z", "-o", "ssl_chain_cert=#{File.join(dir, "certificate.pem")},ssl_key=#{File.join(dir, "key.pem")}"]
        end

        # A server with TLS or passwords is ready once it accepts connections.
        def ready?
          return File.socket?(path) && UNIXSocket.new(path).close.nil? if @socket
          return TCPSocket.new(host, port).close.nil? if @tls || @users

          answers?("version\r\n", /\AVERSION /)
        rescue SystemCallError
          false
        end
      end
    end
  end
end
