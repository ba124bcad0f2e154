# frozen_string_literal: true

require_relative "scram"
require_relative "session_zone"

module Heddle
  module DB
    module PostgreSQL
      # The beginning of a connection: TLS, authentication, settings of the session. From "Start-up" and "SASL
      # Authentication" of PostgreSQL's manual (frontend/backend protocol).
      #
      # @api private
      class Login
        PROTOCOL = 3 << 16
        # Protocol 3.2 has longer keys for cancels. A server that does not know it answers with the version that it
        # speaks; some poolers hang up instead.
        NEWEST = PROTOCOL | 2
        TLS_REQUEST = [8, 80_877_103].pack("NN")
        ALPN = "postgresql"
        HANDSHAKE = "the TLS handshake"
        # The most messages with which a server may answer the log-in.
        ROUNDS = 1000
        # The errors of servers and poolers that do not know a version or an extension of the protocol.
        UNKNOWN_VERSION = %w[08P01 0A000].freeze
        # The highest number of a process on Linux, PID_MAX_LIMIT.
        LAST_PROCESS = 1 << 22
        private_constant :LAST_PROCESS, :PROTOCOL, :NEWEST, :TLS_REQUEST, :ALPN, :HANDSHAKE, :ROUNDS, :UNKNOWN_VERSION

        # @return [Integer, nil] the server's number for this connection
        attr_reader :process_id
        # @return [String, nil] what a cancel has to show
        attr_reader :secret
        # @return [Server] where a cancel has to go: the server that gave the secret, of all those of the same name
        attr_reader :home
        # @return [String] what it waits for, for messages
        attr_reader :step

        # @param protocol [Protocol]
        # @param server [Server]
        # @param settings [Hash{Symbol => Object}] see {Settings.of}
        # @param encrypted [Boolean, nil] whether the connection begins with TLS; nil: where the server has it
        # @param old [Boolean] whether to speak protocol 3.0 alone
        def initialize(protocol, server, settings, encrypted, old: false)
          @protocol = protocol
          @server = server
          @settings = settings
          @encrypted = encrypted
          @old = old
        end

        # @return [self]
        # @raise [LoginFailed, ProtocolError, ConnectionLost, OpenSSL::SSL::SSLError]
        def perform
          @home = home_of(@protocol.stream)
          start_tls unless @encrypted == false
          text = startup
          @step = "the answer to the log-in"
          @protocol.write_message(nil, text)
          authenticate
          @step = "the end of the log-in"
          settle
          speak_of_intervals
          self
        end

        # @param error [Exception] the end of {#perform}
        # @return [Boolean] whether the server may just not know how to refuse a newer protocol
        def too_new?(error)
          return false if @old || @asked || @step != "the answer to the log-in"

          return !@heard unless error.is_a?(LoginFailed)

          error.cause.is_a?(ServerError) && UNKNOWN_VERSION.include?(error.cause.sql_state)
        end

        # @param error [Exception] the end of {#perform}
        # @return [Boolean] whether the server may let us in with TLS where there was none, or the other way round
        def refused?(error)
          return true if error.is_a?(OpenSSL::SSL::SSLError)

          error.cause.is_a?(ServerError) && error.cause.sql_state == "28000" && (@encrypted == false || @began)
        end

        # Asks for TLS, and begins it.
        #
        # @param protocol [Protocol] of this connection, or of one for its cancel
        # @param server [Server]
        # @return [Boolean] whether the server has TLS
        def encrypt(protocol, server)
          unless @settings[:sslnegotiation] == :direct
            protocol.write_bytes(TLS_REQUEST)
            case answer = protocol.read_byte
            when "S" then nil
            when "N" then return false
            when "E" then raise ConnectionLost, "#{server} refused before TLS began: it may be " \
              "out of memory or of processes"
            else
              raise ProtocolError, "#{server} answered a request for TLS with #{answer.inspect}: it is not PostgreSQL"
            end
          end
          # For a cancel, too, when the files may not be there any more.
          @tls_options ||= Login.tls_options(@settings)
          protocol.stream.start_tls(server.host, @tls_options)
          Login.speak_postgresql(protocol.stream.tls, server) if @settings[:sslnegotiation] == :direct
          true
        end

        # Without a request for TLS, nothing else tells that this port speaks PostgreSQL, and not another protocol whose
        # server has a certificate for the same name.
        def self.speak_postgresql(tls, server)
          return if tls.alpn_protocol == ALPN

          raise ProtocolError, "#{server} began TLS without agreeing on the protocol #{ALPN} (ALPN): " \
            "it is not PostgreSQL, or tls: does not offer #{ALPN}"
        end

        # @param error [OpenSSL::SSL::SSLError, SystemCallError]
        # @return [String, nil] what may help, for the message of an error before the server has said anything
        def hint(error)
          return unless @settings[:sslnegotiation] == :direct && @step == HANDSHAKE
          return if error.message.include?("certificate")

          "; servers before PostgreSQL 17 do not know sslnegotiation: direct"
        end

        # @return [Hash, OpenSSL::SSL::SSLContext] for {Stream#start_tls}
        def self.tls_options(settings)
          sslmode = settings[:sslmode]
          tls = settings[:tls]
          return tls if tls.is_a?(OpenSSL::SSL::SSLContext)

          root = settings[:sslrootcert]
          root = nil if root == "system"
          options = {ca_file: root, cert: pem(settings[:sslcert]), key: pem(settings[:sslkey]),
                     key_password: settings[:sslpassword]}.compact
          verified = %i[verify-ca verify-full].include?(sslmode) || (sslmode == :require && root)
          options[:verify] = false unless verified
          options[:verify_hostname] = false if verified && sslmode != :"verify-full"
          options[:alpn_protocols] = [ALPN]
          tls.is_a?(Hash) ? options.merge(tls.transform_keys(&:to_sym)) : options
        end

        def self.pem(path)
          File.binread(path) if path
        rescue SystemCallError => error
          raise ArgumentError, "sslcert: or sslkey: cannot be read: #{error.message}"
        end
        private_class_method :pem

        # Has the server write intervals as PostgreSQL does, which a reset of the session undoes. Poolers refuse the
        # setting in the startup message.
        #
        # @raise [LoginFailed]
        def speak_of_intervals
          return if [nil, "postgres"].include?(@protocol.settings["IntervalStyle"])

          @step = "the setting of IntervalStyle"
          result = @protocol.run_text("set IntervalStyle = postgres")
          refuse("does not set IntervalStyle: #{result.message}") if result.is_a?(ServerError)
        end

        # @return [Boolean] whether TLS protects the connection
        def tls? = @began ? true : false

        # @return [Boolean] whether the number is one that no process has: a pooler made it up
        def pooled? = @process_id.to_i > LAST_PROCESS

        # Without the password.
        def inspect = "#<#{self.class} #{@settings[:user].inspect} at #{@server}>"

        private

        def server_is_local? = !@server.socket.nil?

        def home_of(stream)
          return @server if @server.socket

          Server.new(@server.host, @server.port, nil, stream.to_io.remote_address.ip_address)
        end

        def start_tls
          @step = HANDSHAKE
          @began = encrypt(@protocol, @server)
          return if @began || @encrypted.nil?

          refuse("has no TLS, which #{@settings[:tls] ? "tls:" : "sslmode: #{@settings[:sslmode]}"} asks for")
        end

        # By default, only settings that every pooler accepts; others only if the caller asks for them.
        def startup
          pairs = {"user" => @settings[:user], "database" => @settings[:database], "client_encoding" => "UTF8",
                   "DateStyle" => "ISO", "TimeZone" => SessionZone.name(@settings[:time_zone]),
                   "application_name" => @settings[:application_name] || program,
                   "options" => @settings[:options], "search_path" => @settings[:search_path]}.compact
          pairs.merge!(@settings[:parameters] || {})
          pairs.each { |name, value| raise ArgumentError, "#{name}: has a NUL in it" if value.include?("\0") }
          text = pairs.flat_map { |pair| pair.map { |part| part.encode(Encoding::UTF_8).b << "\0" } }.join
          [@old ? PROTOCOL : NEWEST].pack("N") << text << "\0"
        end

        def program = File.basename($PROGRAM_NAME).dup.force_encoding(Encoding::UTF_8).scrub("?").delete("\0")

        # ---- authentication

        def authenticate
          ROUNDS.times do
            type, payload = message
            case type
            when "R"
              @asked = true
              return if authenticated?(payload)
            when "v" then nil # the newest minor version that it speaks, and options that it does not know
            else unexpected(type)
            end
          end
          refuse("asks for a way to log in again and again")
        end

        def authenticated?(payload)
          number = payload.unpack1("N") || unexpected("R")
          refuse("asks for a way to log in after it had another") if @method && [3, 5, 10].include?(number)
          case number
          when 0 then return proven
          when 3 then clear_password
          when 5 then md5((payload.bytesize == 8) ? payload.byteslice(4, 4) : unexpected("R"))
          when 10 then choose(payload.byteslice(4..).split("\0"))
          when 11 then continue_sasl(payload.byteslice(4..))
          when 12 then finish(payload.byteslice(4..))
          else refuse("wants us to log in by #{way(number)}, which is not known here: " \
            "allow scram-sha-256 in pg_hba.conf")
          end
          false
        end

        def way(number) = {2 => "Kerberos 5", 6 => "SCM", 7 => "GSSAPI", 8 => "GSSAPI", 9 => "SSPI"}.fetch(number) do
          "way #{number}"
        end

        # A server between could let us in without knowing the password, to be told our queries.
        def proven
          if @scram && !@verified
            refuse("lets us in without proving that it knows the password (SCRAM)")
          elsif @settings[:channel_binding] == :require && !@bound
            refuse("lets us in without channel binding, which channel_binding: asks for")
          end
          permit("none") unless @method
          true
        end

        # These methods have no channel binding: an attacker between the two learns the password, or enough to log in.
        def unbound
          return unless @settings[:channel_binding] == :require

          refuse("wants us to log in without channel binding, which channel_binding: asks for")
        end

        # Whether this way is allowed.
        def permit(name)
          @method = name
          allowed = @settings[:require_auth] or return
          listed = allowed.include?(name) || (allowed.first.start_with?("!") && !allowed.include?("!#{name}"))
          refuse("wants us to log in by #{name}, which require_auth: does not allow") unless listed
        end

        def clear_password
          permit("password")
          unbound
          unless @protocol.stream.tls? || server_is_local?
            refuse("wants the password in the clear, where anybody can read it: connect with TLS (sslmode: " \
              "\"verify-full\")")
          end
          @protocol.write_message("p", "#{password}\0".b)
        end

        # MD5(MD5(password + user) + salt).
        def md5(salt)
          permit("md5")
          unbound
          inner = OpenSSL::Digest::MD5.hexdigest(password.b + @settings[:user].b)
          @protocol.write_message("p", "md5#{OpenSSL::Digest::MD5.hexdigest(inner.b + salt)}\0".b)
        rescue OpenSSL::Digest::DigestError
          refuse("wants us to log in by MD5, which this machine's OpenSSL forbids: " \
            "set scram-sha-256 (password_encryption)")
        end

        def choose(mechanisms)
          scram = mechanisms.grep(/\ASCRAM-SHA-256(?:-PLUS)?\z/)
          if scram.empty?
            names = mechanisms.first(8).map { |name| Protocol.sanitize(name.byteslice(0, 64)) }.join(", ")
            refuse("wants us to log in by one of #{names}, which are not known here")
          end

          permit("scram-sha-256")
          could = @settings[:channel_binding] != :disable && @protocol.stream.tls? &&
            SCRAM.end_point(@protocol.stream.tls.peer_cert)
          binding = could if mechanisms.include?("SCRAM-SHA-256-PLUS")
          unless binding || scram.include?("SCRAM-SHA-256")
            refuse("wants us to log in by SCRAM-SHA-256-PLUS alone, which needs TLS, and channel_binding: not disabled")
          end
          if @settings[:channel_binding] == :require && !binding
            refuse("offers no channel binding, which channel_binding: asks for")
          end

          @scram = SCRAM.new(password, binding: binding || nil, offered: could ? true : false)
          @bound = binding ? true : false
          first = @scram.first
          @protocol.write_message("p", @scram.mechanism.b << "\0" << [first.bytesize].pack("N") << first.b)
        end

        def continue_sasl(challenge)
          refuse("sent a challenge (SCRAM) that nobody asked for") unless @scram
          @protocol.write_message("p", @scram.final(challenge).b)
        rescue SCRAM::Refused => error
          refuse(Protocol.sanitize(error.message))
        end

        def finish(message)
          refuse("sent a proof (SCRAM) that nobody asked for") unless @scram
          @scram.verify(message)
          @verified = true
        rescue SCRAM::Refused => error
          refuse(Protocol.sanitize(error.message))
        end

        def password
          @server.password ||
            raise(LoginFailed, "#{@server} wants a password for #{@settings[:user].inspect}: give password:, " \
            "or PGPASSWORD, or a line in ~/.pgpass")
        end

        # ---- what it is like

        def settle
          ROUNDS.times do
            type, payload = message
            case type
            when "S" then store_setting(payload)
            when "K" then @process_id, @secret = (payload.bytesize >= 8) ? payload.unpack("Na*") : unexpected("K")
            when "Z" then return
            else unexpected(type)
            end
          end
          unexpected("S")
        end

        def store_setting(payload)
          name, value, rest = payload.split("\0", -1)
          unexpected("S") unless rest == ""
          @protocol.store_setting(Protocol.sanitize(name), Protocol.sanitize(value))
        end

        # The next message other than a notice.
        def message
          ROUNDS.times do
            type, payload = @protocol.read_message
            @heard = true
            return [type, payload] unless type == "N" || type.is_a?(ServerError)
            next if type == "N"

            said = "#{type.message} (#{type.sql_state})#{advice(type)}"
            raise LoginFailed, "#{@server} does not let #{@settings[:user].inspect} in: #{said}", cause: type
          end
          unexpected("N")
        end

        def advice(error)
          case error.sql_state
          when "28000" then ": #{not_allowed(error)}"
          when "28P01" then ": check user: and password: (or PGUSER, PGPASSWORD, the line in ~/.pgpass)"
          when "3D000" then ": create the database, or name another one (database:)"
          when "53300" then ": raise max_connections, use a smaller pool, or put pgbouncer in between"
          when "57P03" then ": try again in a moment"
          when "08P01"
            ": pgbouncer takes more with ignore_startup_parameters" if error.message.include?("startup parameter")
          end
        end

        # A server without the role says so only in words, which may be in any language.
        def not_allowed(error)
          return "create the role, or name another one (user:)" if error.message.include?("does not exist")

          "a line of the server's pg_hba.conf has to allow it, and the role must exist" \
            "#{"; it may want TLS (sslmode: \"verify-full\")" unless @protocol.stream.tls?}"
        end

        def unexpected(type)
          raise ProtocolError, "#{@server} sent a message #{type.inspect} in the middle of the log-in"
        end

        def refuse(what)
          raise LoginFailed, "#{@server} #{what}", cause: nil
        end
      end
      private_constant :Login
    end
  end
end
