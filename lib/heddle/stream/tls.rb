# frozen_string_literal: true

require "openssl"

module Heddle
  class Stream
    # TLS by Ruby's own openssl, driven by the stream: the handshake and all that follows wait as the stream does. The peer is
    # verified unless the caller says otherwise; sessions are kept and used again.
    module TLS
      # How many peers' sessions are kept.
      SESSIONS = 256

      # How many different sets of options are.
      CONTEXTS = 64

      @sessions = {}
      @contexts = {}
      @lock = Mutex.new

      class << self
        # Does the handshake on a stream.
        #
        # @param stream [Stream] at rest
        # @param host [String, nil] whose certificate it has to be, also what the server is told (SNI). nil is refused
        #   while the peer is verified
        # @param options [true, Hash, OpenSSL::SSL::SSLContext] a context is taken as it is. A Hash: +hostname:+ (another
        #   name for the certificate), +ca_file:+, +ca_path:+ (authorities in place of the system's), +cert:+, +key:+ (our
        #   own, PEM or OpenSSL objects), +key_password:+ (of a PEM that has one), <tt>verify: false</tt> (anybody will do: only for tests), and whatever
        #   OpenSSL::SSL::SSLContext#set_params knows. TLS 1.2 is the least unless +min_version:+ says otherwise
        # @return [OpenSSL::SSL::SSLSocket]
        # @raise [OpenSSL::SSL::SSLError] when the peer is not who it should be; [DeadlineExceeded]
        def start(stream, host, options = true)
          if stream.buffered > 0
            stream.poison
            raise IOError, "#{stream.peer} sent #{stream.buffered} bytes in the clear before TLS began: they might be anybody's"
          end
          options = options.transform_keys(&:to_sym) if options.is_a?(Hash)
          name = (options[:hostname] if options.is_a?(Hash)) || host
          context = context_for(options)
          socket = OpenSSL::SSL::SSLSocket.new(stream.to_io, context)
          socket.sync_close = true
          handshake(stream, socket, context, name)
          socket
        end

        # Called once something was read, which is when TLS 1.3 has told us the session too. OpenSSL's own callback is of no
        # use: Ruby loses the interrupts that arrive inside of it (a Thread#raise, a deadline).
        #
        # @api private
        def keep_session(socket)
          key = socket.instance_variable_get(:@heddle_session_key)
          session = socket.session if key
          return unless session

          @sessions.delete(key)
          @sessions.shift while @sessions.size >= SESSIONS
          @sessions[key] = session
        end

        private

        def handshake(stream, socket, context, name)
          verified = context.verify_mode != OpenSSL::SSL::VERIFY_NONE
          raise ArgumentError, "whose certificate is it to be? pass the host's name (hostname:)" if verified && !name

          socket.hostname = name if name && !address?(name)
          key = [context, name, stream.peer]
          session = @sessions[key]
          socket.session = session if session
          socket.instance_variable_set(:@heddle_session_key, key)
          shake(stream, socket)
          socket.post_connection_check(name) if verified
          complete = true
        ensure
          unless complete
            @sessions.delete(key)
            stream.poison
          end
        end

        def shake(stream, socket)
          loop do
            case socket.connect_nonblock(exception: false)
            when :wait_readable then stream.wait_readable
            when :wait_writable then stream.wait_writable
            else return
            end
          end
        end

        def address?(name)
          name.match?(/\A\d+\.\d+\.\d+\.\d+\z/) || name.include?(":")
        end

        # One for all connections with the same options: authorities are read once, and sessions belong to a context.
        def context_for(options)
          return options if options.is_a?(OpenSSL::SSL::SSLContext)

          options = options.is_a?(Hash) ? options.except(:hostname) : {}
          @lock.synchronize { @contexts[options] } || begin
            context = new_context(**options)
            @lock.synchronize do
              @contexts.shift while @contexts.size >= CONTEXTS
              @contexts[options] ||= context
            end
          end
        end

        def new_context(verify: true, cert: nil, key: nil, key_password: nil, **rest)
          context = OpenSSL::SSL::SSLContext.new
          check(context, rest)
          rest[:min_version] ||= OpenSSL::SSL::TLS1_2_VERSION
          cert = certificate(cert) if cert.is_a?(String)
          key = private_key(key, key_password) if key.is_a?(String)
          rest[:cert] = cert if cert
          rest[:key] = key if key
          rest[:verify_mode] ||= verify ? OpenSSL::SSL::VERIFY_PEER : OpenSSL::SSL::VERIFY_NONE
          context.set_params(rest)
          context
        end

        # OpenSSL's own errors name neither the option nor the file.
        def check(context, options)
          unknown = options.keys.reject { |name| context.respond_to?("#{name}=") }
          raise ArgumentError, "there are no options of TLS named #{unknown.map(&:inspect).join(", ")}" unless unknown.empty?

          {ca_file: :file?, ca_path: :directory?}.each do |name, test|
            path = options[name]
            next if path.nil? || (File.public_send(test, path) && File.readable?(path))

            raise ArgumentError, "#{name}: #{path.inspect} is no #{test.to_s.chomp("?")} that can be read"
          end
        end

        def certificate(pem)
          OpenSSL::X509::Certificate.new(pem)
        rescue OpenSSL::X509::CertificateError => error
          raise ArgumentError, "cert: is no certificate in PEM or DER (#{error.message})"
        end

        # Without a password OpenSSL would ask the terminal for that of a key that has one, and all threads would wait.
        def private_key(pem, password)
          OpenSSL::PKey.read(pem, password || "")
        rescue OpenSSL::PKey::PKeyError
          raise ArgumentError, "key: is no private key in PEM or DER, or is locked by #{password ? "another" : "a"} password (key_password:)", cause: nil
        end
      end
    end
  end
end
