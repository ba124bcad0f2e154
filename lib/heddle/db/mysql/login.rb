# frozen_string_literal: true

require "openssl"

module Heddle
  module DB
    module MySQL
      # The handshake of a connection: greeting, TLS, authentication. From "Connection Phase" of MySQL's and
      # "Connecting" of MariaDB's protocol documentation.
      class Login
        LONG_PASSWORD = 1 << 0
        FOUND_ROWS = 1 << 1
        CONNECT_WITH_DB = 1 << 3
        PROTOCOL_41 = 1 << 9
        TLS = 1 << 11
        TRANSACTIONS = 1 << 13
        SECURE_CONNECTION = 1 << 15
        MULTI_RESULTS = 1 << 17
        PREPARED_MULTI_RESULTS = 1 << 18
        PLUGIN_AUTH = 1 << 19
        CONNECT_ATTRIBUTES = 1 << 20
        AUTHENTICATION_LENGTHS = 1 << 21
        TRACK_SESSION = 1 << 23
        DEPRECATE_EOF = 1 << 24
        CACHE_METADATA = 1 << 36

        # Without LOCAL INFILE, by which a server asks for files of this machine, and several statements at once.
        WANTED = PROTOCOL_41 | TRANSACTIONS | SECURE_CONNECTION | MULTI_RESULTS | PREPARED_MULTI_RESULTS | PLUGIN_AUTH |
          CONNECT_ATTRIBUTES | AUTHENTICATION_LENGTHS | TRACK_SESSION | DEPRECATE_EOF
        # The most packets of a server's answer to the log-in: a correct server needs two for each authentication
        # method, and has only a few methods.
        ROUNDS = 64
        # The bytes of a server's random challenge, which makes the proof of a password valid for one log-in only.
        SCRAMBLE = 20
        private_constant :LONG_PASSWORD, :FOUND_ROWS, :CONNECT_WITH_DB, :PROTOCOL_41, :TLS, :TRANSACTIONS,
          :SECURE_CONNECTION, :MULTI_RESULTS, :PREPARED_MULTI_RESULTS, :PLUGIN_AUTH, :CONNECT_ATTRIBUTES,
          :AUTHENTICATION_LENGTHS, :TRACK_SESSION, :DEPRECATE_EOF, :CACHE_METADATA, :WANTED, :ROUNDS, :SCRAMBLE

        # @return [String] the server's version
        attr_reader :version
        # @return [Integer] the server's number for this connection
        attr_reader :thread
        # @return [Integer] the capabilities of both sides
        attr_reader :capabilities
        # @return [String] the current step, for messages
        attr_reader :step

        # @return [String, nil] the default database
        attr_reader :database

        # @return [Boolean]
        def mariadb? = @mariadb

        # @return [Boolean] whether the server reports changes of the session
        def tracks_session? = @capabilities & TRACK_SESSION != 0

        # @param protocol [Protocol]
        # @param secure [Boolean] whether the connection is safe from eavesdropping: a UNIX socket
        def initialize(protocol, tls:, host:, charset:, secure:, user: nil, password: nil,
          database: nil, clear_password: false, server_public_key: nil, found_rows: false)
          @wanted = found_rows ? WANTED | FOUND_ROWS : WANTED
          @protocol = protocol
          encoding = CHARSETS.fetch(charset).first
          @user = encoded(user.to_s, encoding, "user")
          @password = password.to_s.b
          @database = database && encoded(database, encoding, "database")
          @tls = tls
          @host = host
          @charset = charset
          @secure = secure
          @clear_password = clear_password
          @server_public_key = server_public_key
        end

        # Logs in.
        #
        # @return [self]
        # @raise [LoginFailed, ProtocolError, ConnectionLost]
        def perform
          @step = "the server's greeting"
          greet
          if @tls
            @step = "the TLS handshake"
            start_tls
          end
          @step = "the answer to the log-in"
          @protocol.write_packet(response)
          converse
          self
        end

        # @return [String] without the password
        def inspect
          "#<#{self.class} #{@user.inspect} at #{@protocol.stream.peer}>"
        end

        private

        # The server reads names in the charset of the log-in.
        def encoded(text, encoding, what)
          (encoding == Encoding::BINARY || text.encoding == Encoding::BINARY) ? text : text.encode(encoding)
        rescue EncodingError
          raise ArgumentError, "#{what}: #{text.inspect} cannot be written in the connection's charset: " \
            "use utf8mb4 (charset:)"
        end

        def greet
          @version, @thread, server, @scramble, @plugin, @mariadb = answer(@protocol.greeting)
          @version = Protocol.sanitize(@version)
          refuse("speaks a protocol older than 4.1 (2004)") unless server & PROTOCOL_41 != 0
          wanted = @wanted | (@mariadb ? CACHE_METADATA : LONG_PASSWORD)
          wanted |= CONNECT_WITH_DB if @database
          wanted |= TLS if @tls
          refuse("does not offer TLS, but tls: requires it") if @tls && server & TLS == 0
          @capabilities = wanted & server
          @capabilities |= server & LONG_PASSWORD
        end

        def start_tls
          @protocol.write_packet(head)
          @protocol.stream.start_tls(@host, @tls)
          @secure = true
        end

        # The common start of the request for TLS and of the response.
        def head
          [@capabilities & 0xffffffff, 1 << 30, CHARSETS.fetch(@charset).last, "", @mariadb ? @capabilities >> 32 : 0]
            .pack("VVCa19V")
        end

        def response
          plugin = supported?(@plugin) ? @plugin : "mysql_native_password"
          proof = proof(plugin)
          packet = head << @user.b << "\0" << [proof.bytesize].pack("C") << proof
          packet << @database.b << "\0" if @capabilities & CONNECT_WITH_DB != 0
          @plugin = plugin
          packet << plugin << "\0" if @capabilities & PLUGIN_AUTH != 0
          packet << attributes if @capabilities & CONNECT_ATTRIBUTES != 0
          packet
        end

        def attributes
          pairs = {"_client_name" => "heddle", "_client_version" => VERSION, "_pid" => Process.pid.to_s,
                   "program_name" => File.basename($PROGRAM_NAME)}
          text = pairs.flatten.map { |part| [part.bytesize].pack("C") + part.b.byteslice(0, 250) }.join
          (text.bytesize < 251) ? [text.bytesize].pack("C") + text : "\xfc".b + [text.bytesize].pack("v") + text
        end

        def converse
          ROUNDS.times do
            packet = answer(@protocol.read_packet)
            case packet.getbyte(0)
            when 0x00 then return
            when 0xfe then switch(packet)
            when 0x01 then more(packet.byteslice(1..))
            else refuse("sent an unexpected packet in answer to the log-in")
            end
          end
          refuse("keeps asking for other authentication methods")
        end

        # The server asks for another authentication method.
        def switch(packet)
          refuse("asks for the password hash of before 2004, which an eavesdropper can crack") if packet.bytesize == 1
          name, data = packet.byteslice(1..).split("\0", 2)
          unless supported?(name)
            refuse("asks for the authentication method #{Protocol.sanitize(name.to_s)}, which Heddle does not support")
          end
          @plugin = name
          @scramble = data.to_s.byteslice(0, SCRAMBLE)
          unless name == "mysql_clear_password" || @scramble.bytesize == SCRAMBLE
            refuse("sent a scramble of #{@scramble.bytesize} bytes, not #{SCRAMBLE}")
          end
          @protocol.write_packet(proof(name))
        end

        def supported?(plugin)
          %w[mysql_native_password caching_sha2_password mysql_clear_password].include?(plugin)
        end

        def proof(plugin)
          case plugin
          when "mysql_native_password" then @password.empty? ? "" : native_proof
          when "caching_sha2_password" then @password.empty? ? "" : sha2_proof
          else clear_password
          end
        end

        # "Native Authentication": SHA1(password) XOR SHA1(scramble + SHA1(SHA1(password))).
        def native_proof
          once = OpenSSL::Digest::SHA1.digest(@password)
          exclusive_or(once, OpenSSL::Digest::SHA1.digest(@scramble + OpenSSL::Digest::SHA1.digest(once)))
        end

        # "Caching SHA-2 Pluggable Authentication": SHA256(password) XOR SHA256(SHA256(SHA256(password)) + scramble).
        def sha2_proof
          once = OpenSSL::Digest::SHA256.digest(@password)
          exclusive_or(once, OpenSSL::Digest::SHA256.digest(OpenSSL::Digest::SHA256.digest(once) + @scramble))
        end

        def clear_password
          unless @clear_password && @protocol.stream.tls?
            refuse("asks for the password in clear text: allow that by clear_password: true, over TLS only")
          end
          @password + "\0"
        end

        # caching_sha2_password: 3, the server knows the password; 4, the server needs the password.
        def more(data)
          case @plugin == "caching_sha2_password" && data.getbyte(0)
          when 3 then nil
          when 4 then @protocol.write_packet(@secure ? @password + "\0" : encrypted_password)
          else refuse("sent an unknown request during the log-in")
          end
        end

        def encrypted_password
          key = (@server_public_key == :ask) ? OpenSSL::PKey::RSA.new(asked_key, "") : own_key
          scramble = (@scramble * (@password.bytesize / @scramble.bytesize + 1)).byteslice(0, @password.bytesize + 1)
          key.public_encrypt(exclusive_or(@password + "\0", scramble), OpenSSL::PKey::RSA::PKCS1_OAEP_PADDING)
        rescue OpenSSL::PKey::PKeyError => error
          refuse("sent a public key that cannot encrypt the password (#{Protocol.sanitize(error.message)})")
        end

        def own_key
          @server_public_key || refuse("does not have this password in its cache: the password is wrong, or the " \
            "user has not logged in yet, for which the server needs the password itself. Use TLS, pass the server's " \
            "key (server_public_key:), or trust the key that the server sends (:ask)")
        end

        def asked_key
          @protocol.write_packet("\x02")
          packet = answer(@protocol.read_packet)
          refuse("sent no public key to encrypt the password") unless packet.getbyte(0) == 1
          packet.byteslice(1..)
        end

        def exclusive_or(left, right)
          left.bytes.zip(right.bytes).map { |a, b| a ^ b }.pack("C*")
        end

        def answer(packet)
          return packet unless packet.is_a?(ServerError)

          raise LoginFailed, "#{@protocol.stream.peer} does not let #{@user.inspect} in: #{packet.message} " \
            "(#{packet.code})#{advice(packet)}"
        end

        # The codes are those of "Server Error Message Reference" in MySQL's manual.
        def advice(refusal)
          case refusal.code
          when 1045 then ": check user: and password:"
          when 1044 then ": grant this user rights on the database, or name another one (database:)"
          when 1049 then ": create the database, or name another one (database:)"
          end
        end

        def refuse(what)
          raise LoginFailed, "#{@protocol.stream.peer} #{what}"
        end
      end
    end
  end
end
