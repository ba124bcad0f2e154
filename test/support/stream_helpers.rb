# frozen_string_literal: true

require "heddle"
require "monitor"
require "openssl"
require "socket"
require "tempfile"
require "support/loop_helpers"

# What tests of Heddle::Stream share: both ends of a connection, with and without TLS, in each of the ways to wait.
module StreamHelpers
  include LoopHelpers

  # A certificate for "localhost" and 127.0.0.1 by an authority of its own, made once a process.
  module Certificates
    @lock = Monitor.new
    @made = {}

    class << self
      def authority = once(:authority) { make("/CN=Tests of Heddle", nil) }
      def server = once(:server) { make("/CN=localhost", authority, "DNS:localhost,IP:127.0.0.1") }
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

      # What two threads asked for at once would be made twice, and one's certificate would not be by the other's authority.
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

  # How a test waits. Each runs the block and returns its value.
  MODES = {
    thread: ->(block) { block.call },
    fiber: ->(block) { Heddle.run { block.call } },
    async: lambda do |block|
      require "async"
      Sync { block.call }
    end
  }.freeze

  def in_mode(mode, &block)
    MODES.fetch(mode).call(block)
  end

  # A stream and the socket at its other end, connected by TCP, both closed after the block. The other end is served by
  # `serve` in a thread of its own if it is given, and is not handed to the block then.
  def with_stream(tls: false, serve: nil, **options)
    listener = TCPServer.new("127.0.0.1", 0)
    peer = nil
    acceptor = Thread.new do
      peer = listener.accept
      peer.setsockopt(:TCP, :NODELAY, true)
      if tls
        peer = OpenSSL::SSL::SSLSocket.new(peer, Certificates.context)
        peer.sync_close = true
        peer.accept
      end
      serve&.call(peer)
    rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
      raise unless serve # the stream was closed, as tests do
    end
    acceptor.report_on_exception = !serve
    options[:tls] = {ca_file: Certificates.authority_file} if tls
    stream = Heddle::Stream.connect("127.0.0.1", listener.addr[1], **options)
    acceptor.join unless serve
    yield stream, peer
  ensure
    stream&.close
    acceptor&.kill
    wait_until(what: "the server's end") { !acceptor&.alive? }
    peer&.close
    listener&.close
  end
end
