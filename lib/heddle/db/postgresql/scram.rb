# frozen_string_literal: true

require "openssl"
require "securerandom"

module Heddle
  module DB
    module PostgreSQL
      # The client's side of SCRAM-SHA-256, RFC 5802 and 7677: the password itself is not sent, and the server has to
      # prove that it knows it. With channel binding (SCRAM-SHA-256-PLUS, RFC 5929 tls-server-end-point) no attacker can
      # be between the two.
      #
      # @api private
      class SCRAM
        # Raised for what the server must not send.
        Refused = Class.new(StandardError)

        # A server that asks for more would keep this process computing, half a second for a million; its own default
        # is 4096.
        MAX_ITERATIONS = 1_000_000

        # RFC 5929, 4.1: a certificate signed with MD5 or SHA-1 is hashed with SHA-256. A signature that does not name
        # its hash (RSASSA-PSS, Ed25519) has no channel binding.
        #
        # @return [String, nil]
        def self.end_point(certificate)
          name = certificate.signature_algorithm[/sha(?:1|224|256|384|512)|md5/i]&.upcase or return
          name = "SHA256" if %w[SHA1 MD5].include?(name)
          OpenSSL::Digest.digest(name, certificate.to_der)
        rescue OpenSSL::X509::CertificateError, RuntimeError
          nil
        end

        # @return [String] the name of the mechanism
        attr_reader :mechanism

        # @param password [String]
        # @param binding [String, nil] of the certificate, see {.end_point}; nil: there is no channel binding
        # @param offered [Boolean] whether the server could have bound the channel
        # @param nonce [String] printable, without a comma
        # @param user [String] PostgreSQL takes the name from the startup message, and no name here
        def initialize(password, binding: nil, offered: false, nonce: SecureRandom.base64(18), user: "")
          @password = prepared(password)
          @binding = binding
          @mechanism = binding ? "SCRAM-SHA-256-PLUS" : "SCRAM-SHA-256"
          # "y": we could, and think that the server cannot. A server that can then knows that somebody sits between.
          @header = if binding
            "p=tls-server-end-point,,"
          else
            offered ? "y,," : "n,,"
          end
          @nonce = nonce
          @user = user
        end

        # @return [String] the client's first message
        def first
          @first_bare = "n=#{@user},r=#{@nonce}"
          @header + @first_bare
        end

        # @param message [String] the server's first
        # @return [String] the client's final message
        # @raise [Refused]
        def final(message)
          raise Refused, "sent a second challenge (SCRAM)" if @signature

          nonce, salt, iterations = parse(message)
          salted = OpenSSL::KDF.pbkdf2_hmac(@password, salt: salt, iterations: iterations, length: 32, hash: "SHA256")
          client_key = hmac(salted, "Client Key")
          bare = "c=#{["#{@header}#{@binding}"].pack("m0")},r=#{nonce}"
          signed = "#{@first_bare},#{message},#{bare}"
          proof = exclusive_or(client_key, hmac(OpenSSL::Digest.digest("SHA256", client_key), signed))
          @signature = hmac(hmac(salted, "Server Key"), signed)
          "#{bare},p=#{[proof].pack("m0")}"
        end

        # @param message [String] the server's final one
        # @raise [Refused] unless it proves that the server knows the password
        def verify(message)
          fields = fields(message)
          raise Refused, "refuses the password: #{fields["e"]}" if fields["e"]

          given = fields["v"].to_s.unpack1("m0")
          if @signature &&
              given.bytesize == @signature.bytesize && OpenSSL.fixed_length_secure_compare(given, @signature)
            return
          end

          raise Refused,
            "does not prove that it knows the password itself: it may not be the server that it claims to be"
        rescue ArgumentError
          raise Refused, "sent a malformed proof (SCRAM)"
        end

        # Without the password.
        def inspect = "#<#{self.class} #{mechanism}>"

        private

        def parse(message)
          fields = fields(message)
          nonce, iterations = fields["r"].to_s, fields["i"].to_s
          unless iterations.match?(/\A[1-9]\d{0,9}\z/) && !fields.key?("m")
            raise Refused, "sent a malformed challenge (SCRAM)"
          end
          unless nonce.start_with?(@nonce) && nonce.bytesize > @nonce.bytesize
            raise Refused, "sent another challenge than the one for us (SCRAM)"
          end
          if Integer(iterations) > MAX_ITERATIONS
            raise Refused,
              "asks for #{iterations} rounds of hashing, #{MAX_ITERATIONS} at most (scram_iterations of the server)"
          end

          [nonce, fields["s"].to_s.unpack1("m0"), Integer(iterations)]
        rescue ArgumentError
          raise Refused, "sent a malformed challenge (SCRAM)"
        end

        def fields(message) = message.split(",").to_h { |part| [part[0], part[2..].to_s] }

        # RFC 4013 as PostgreSQL has it: what is no UTF-8, or must not stand in a password, is taken byte by byte.
        def prepared(password)
          text = password.dup.force_encoding(Encoding::UTF_8)
          return password.b if text.ascii_only? || !text.valid_encoding?

          text = text.gsub(/[\u00A0\u1680\u2000-\u200B\u202F\u205F\u3000]/, " ")
          text = text.gsub(/[\u00AD\u034F\u1806\u180B-\u180D\u200C\u200D\u2060\uFE00-\uFE0F\uFEFF]/, "")
          text = text.unicode_normalize(:nfkc)
          (text.empty? || text.match?(/[[:cntrl:]]/)) ? password.b : text.b
        end

        def hmac(key, data) = OpenSSL::HMAC.digest("SHA256", key, data)

        def exclusive_or(left, right) = left.bytes.zip(right.bytes).map { |a, b| a ^ b }.pack("C*")
      end
      private_constant :SCRAM
    end
  end
end
