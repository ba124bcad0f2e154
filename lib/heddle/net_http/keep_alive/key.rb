# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # What makes two connections different, except for timeouts: only a session with the same key takes a kept
      # connection, or resumes its TLS session. Settings are compared by their content, objects by identity: in C
      # (ext/heddle/net_http/net_http_places.c).
      class Key
        # Compared by content. Files and folders are compared by their stamp, too: see {stamp}.
        TLS_SETTINGS = %i[@ssl_version @min_version @max_version @ciphers @verify_mode @verify_depth @verify_hostname
          @ssl_timeout @ca_file @ca_path].freeze
        # Compared by identity.
        TLS_OBJECTS = %i[@cert @key @cert_store @verify_callback @extra_chain_cert].freeze
        # Seconds for which a folder's files are not looked at again.
        SECONDS = 1.0
        # The most folders whose files are known.
        FOLDERS = 16
        private_constant :TLS_SETTINGS, :TLS_OBJECTS, :SECONDS, :FOLDERS

        @folders = {}

        class << self
          # @param http [Net::HTTP] not connected yet
          # @param chosen [Object] what the program's block returned, or true
          # @return [Key]
          def of(http, chosen)
            return new(named(http.class), http.address, http.port, nil, nil) if chosen == true && Library.bare?(http)

            new(named(http.class), http.address, http.port, settings(http, chosen),
              (Library.objects(http, TLS_OBJECTS) if http.use_ssl?))
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
            values = Library.variables(http, TLS_SETTINGS)
            store = http.instance_variable_get(:@cert_store) || OpenSSL::SSL::SSLContext::DEFAULT_CERT_STORE
            OpenSSL::X509::Store.prepend(Changes) unless OpenSSL::X509::Store < Changes
            [:tls, *values, *values.last(2).map { |path| stamp(path) }, Library.changes(store),
              OpenSSL::SSL::SSLContext::DEFAULT_PARAMS]
          end

          # A file that was replaced or written has another stamp; so has a folder whose files were.
          def stamp(path)
            return unless path

            stat = File.stat(path)
            own = fields(stat)
            stat.directory? ? own << of_files(path, own) : own
          rescue SystemCallError => error
            error.errno
          end

          def fields(stat)
            written, changed = stat.mtime, stat.ctime
            [stat.dev, stat.ino, stat.size, written.to_i, written.nsec, changed.to_i, changed.nsec]
          end

          # Folders of authorities have hundreds of files.
          def of_files(path, own)
            known = @folders[path]
            return known[1] if known && known[0] == own && Clock.now - known[2] < SECONDS

            stamp = Dir.children(path).sort.map { |name| [name, stamp_of_file(File.join(path, name))] }.hash
            @folders = {} if @folders.size >= FOLDERS && !known # other threads may search the table
            @folders[path.dup] = [own.dup, stamp, Clock.now]
            stamp
          end

          def stamp_of_file(path)
            fields(File.stat(path))
          rescue SystemCallError => error # a dangling link
            error.errno
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
