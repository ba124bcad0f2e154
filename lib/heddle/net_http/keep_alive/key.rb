# frozen_string_literal: true

require_relative "../../core/file_stamp"

module Heddle
  module NetHTTP
    module KeepAlive
      # What makes two connections different, except for timeouts: only a session with the same key takes a kept
      # connection, or resumes its TLS session. Settings are compared by their content, objects by identity: in C
      # (ext/heddle/net_http/key.c).
      class Key
        # Compared by content. Files and folders are compared by their stamp, too: see {FileStamp}.
        TLS_SETTINGS = %i[@ssl_version @min_version @max_version @ciphers @verify_mode @verify_depth @verify_hostname
          @ssl_timeout @ca_file @ca_path].freeze
        # Compared by identity. The store of certificates is compared by what it trusts: see {Trust}.
        TLS_OBJECTS = %i[@cert @key @verify_callback @extra_chain_cert].freeze
        private_constant :TLS_SETTINGS, :TLS_OBJECTS

        class << self
          # @param http [Net::HTTP] not connected yet
          # @param chosen [Object] what the program's block returned, or true
          # @return [Key]
          def of(http, chosen)
            return new(named(http.class), http.address, http.port, nil, nil) if chosen == true && bare?(http)

            new(named(http.class), http.address, http.port, settings(http, chosen),
              (objects(http, TLS_OBJECTS) if http.use_ssl?))
          end

          private

          # Net::HTTP.Proxy makes a class for each call.
          def named(klass)
            klass = klass.superclass while klass.proxy_class? && klass.name.nil?
            klass
          end

          def settings(http, chosen)
            settings = [http.instance_variable_get(:@ipaddr), http.local_host, http.local_port, chosen]
            settings.concat(proxy(http)) if http.proxy?
            settings.concat(tls(http)) if http.use_ssl?
            settings
          end

          def proxy(http)
            [:proxy, http.proxy_address, http.proxy_port, http.proxy_user, http.proxy_pass,
              http.instance_variable_get(:@proxy_use_ssl)]
          end

          def tls(http)
            values = variables(http, TLS_SETTINGS)
            store = http.instance_variable_get(:@cert_store) || OpenSSL::SSL::SSLContext::DEFAULT_CERT_STORE
            [:tls, *values, *values.last(2).map { |path| FileStamp.of(path) }, Trust.of(store),
              OpenSSL::SSL::SSLContext::DEFAULT_PARAMS]
          end
        end

        # @return [String] the server's name or address, as the program gave it
        attr_reader :host

        # @return [Integer]
        attr_reader :port

        def initialize(session_class, host, port, settings, objects)
          @session_class = session_class
          @host = host
          @port = port
          @settings = settings
          @objects = objects
        end

        # @return [String] the name or address that is connected to: the proxy's if there is one
        def peer
          return host unless @settings

          (@settings[4] == :proxy) ? @settings[5] : @settings[0] || host
        end

        # A copy that does not change with the Strings and Arrays that a program has set.
        #
        # @return [Key]
        def lasting = Key.new(@session_class, lasting_copy(@host), @port, lasting_copy(@settings), @objects)

        private

        def lasting_copy(value)
          case value
          when String then -value
          when Array then value.map { |one| lasting_copy(one) }.freeze
          when Hash then value.transform_values { |one| lasting_copy(one) }.freeze
          else value
          end
        end
      end
      private_constant :Key
    end
  end
end
