# frozen_string_literal: true

require "openssl"
require_relative "../core/file_stamp"

module Heddle
  class Stream
    # TLS by Ruby's own openssl, driven by the stream: the handshake and all later operations wait as the stream does.
    # The peer is verified by default; sessions are kept and reused.
    module TLS
      # The most peers whose sessions are kept.
      SESSIONS = 256

      # The most sets of options whose contexts are kept.
      CONTEXTS = 64

      @sessions = {}
      @contexts = {}
      @lock = Mutex.new

      class << self
        # Does the handshake on a stream.
        #
        # @param stream [Stream] at rest
        # @param host [String, nil] the name that the certificate must have, also sent to the server (SNI). nil raises
        #   ArgumentError while the peer is verified
        # @param options [true, Hash, OpenSSL::SSL::SSLContext] a context is used unchanged. A Hash: +hostname:+
        #   (another name for the certificate), +ca_file:+, +ca_path:+ (authorities in place of the system's), +cert:+,
        #   +key:+ (our own, PEM or OpenSSL objects), +key_password:+ (of an encrypted PEM), <tt>verify: false</tt>
        #   (accepts any peer: only for tests), <tt>verify_hostname: false</tt> (accepts any name that the authorities
        #   signed), and all options of OpenSSL::SSL::SSLContext#set_params. +min_version:+ is TLS 1.2 by default
        # @return [OpenSSL::SSL::SSLSocket]
        # @raise [OpenSSL::SSL::SSLError] when the peer's certificate does not verify
        # @raise [DeadlineExceeded]
        def start(stream, host, options = true)
          if stream.buffered > 0
            stream.poison
            raise IOError, "#{stream.peer} sent #{stream.buffered} bytes in clear text before TLS began: " \
              "they might be anybody's"
          end
          options = options.transform_keys(&:to_sym) if options.is_a?(Hash)
          name = (options[:hostname] if options.is_a?(Hash)) || host
          context = context_for(options)
          socket = OpenSSL::SSL::SSLSocket.new(stream.to_io, context)
          socket.sync_close = true
          # A context of OpenSSL's own says false unless it was told: only a Hash can mean it.
          named = !options.is_a?(Hash) || options[:verify_hostname] != false
          handshake(stream, socket, context, name, named)
          socket
        end

        # Called after the first read, when TLS 1.3, too, has sent the session. OpenSSL's own callback cannot be used:
        # Ruby loses interrupts that arrive inside the callback (a Thread#raise, a deadline).
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

        def handshake(stream, socket, context, name, named)
          verified = context.verify_mode != OpenSSL::SSL::VERIFY_NONE
          if verified && named && !name
            raise ArgumentError, "hostname: is missing: TLS checks the certificate against the host's name"
          end

          socket.hostname = name if name && !address?(name)
          key = [context, name, stream.peer]
          session = @sessions[key]
          socket.session = session if session
          socket.instance_variable_set(:@heddle_session_key, key)
          shake(stream, socket)
          socket.post_connection_check(name) if verified && named
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

        # One context for all connections with the same options: authorities are read once, as long as their files stay
        # the same, and sessions belong to a context.
        def context_for(options)
          return options if options.is_a?(OpenSSL::SSL::SSLContext)

          options = options.is_a?(Hash) ? options.except(:hostname) : {}
          key = [options, FileStamp.of(options[:ca_file]), FileStamp.of(options[:ca_path])]
          @lock.synchronize { @contexts[key] } || begin
            context = new_context(**options)
            @lock.synchronize do
              @contexts.shift while @contexts.size >= CONTEXTS
              @contexts[key] ||= context
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

        # OpenSSL's own error messages name neither the option nor the file.
        def check(context, options)
          unknown = options.keys.reject { |name| context.respond_to?("#{name}=") }
          unless unknown.empty?
            raise ArgumentError, "unknown options of TLS: #{unknown.map(&:inspect).join(", ")}"
          end

          {ca_file: :file?, ca_path: :directory?}.each do |name, test|
            path = options[name]
            next if path.nil? || (File.public_send(test, path) && File.readable?(path))

            raise ArgumentError, "#{name}: #{path.inspect} is not a readable #{test.to_s.chomp("?")}"
          end
        end

        def certificate(pem)
          OpenSSL::X509::Certificate.new(pem)
        rescue OpenSSL::X509::CertificateError => error
          raise ArgumentError, "cert: is not a certificate in PEM or DER (#{error.message})"
        end

        # For an encrypted key without a password, OpenSSL would prompt on the terminal, and all threads would wait.
        def private_key(pem, password)
          OpenSSL::PKey.read(pem, password || "")
        rescue OpenSSL::PKey::PKeyError
          raise ArgumentError, "key: is not a private key in PEM or DER, " \
            "or is locked by #{password ? "another" : "a"} password (key_password:)", cause: nil
        end
      end
    end
  end
end
