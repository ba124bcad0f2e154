# frozen_string_literal: true

require "monitor"
require "openssl"
require "tempfile"

# A certificate for "localhost" and 127.0.0.1, signed by its own authority, made once a process.
module Certificates
  @lock = Monitor.new
  @made = {}

  class << self
    def authority = once(:authority) { make("/CN=Tests of Heddle", nil) }
    def server = once(:server) { make("/CN=localhost", authority, "DNS:localhost,IP:127.0.0.1") }
    def client(name) = once([:client, name]) { make("/CN=#{name}", authority) }
    def stranger = once(:stranger) { make("/CN=elsewhere.test", authority, "DNS:elsewhere.test") }

    def authority_file
      once(:file) { Tempfile.new("authority").tap { |file| file.write(authority.first.to_pem) && file.flush } }.path
    end

    def context(pair = server)
      OpenSSL::SSL::SSLContext.new.tap do |context|
        context.cert, context.key = pair
        context.session_id_context = "heddle tests"
      end
    end

    private

    # Without the lock two threads would make it twice, and a certificate might not match the authority.
    def once(name)
      @lock.synchronize { @made[name] ||= yield }
    end

    def make(name, issuer, alternatives = nil)
      key = OpenSSL::PKey::EC.generate("prime256v1")
      certificate = OpenSSL::X509::Certificate.new
      certificate.version = 2
      certificate.serial = rand(1 << 64)
      certificate.subject = OpenSSL::X509::Name.parse(name)
      certificate.issuer = issuer ? issuer.first.subject : certificate.subject
      certificate.public_key = key
      certificate.not_before = Time.now - 3600
      certificate.not_after = Time.now + 86400
      factory = OpenSSL::X509::ExtensionFactory.new(issuer&.first || certificate, certificate)
      certificate.add_extension(factory.create_extension("basicConstraints", "CA:#{issuer.nil?}", true))
      certificate.add_extension(factory.create_extension("subjectAltName", alternatives)) if alternatives
      certificate.sign(issuer ? issuer.last : key, "SHA256")
      [certificate, key]
    end
  end
end
