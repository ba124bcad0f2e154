# frozen_string_literal: true

require "heddle"
require "openssl"
require "socket"
require "support/certificates"
require "support/loop_helpers"

# Helpers that tests of Heddle::Stream share: both ends of a connection, with and without TLS, in each way to wait.
module StreamHelpers
  include LoopHelpers

  Certificates = ::Certificates

  # The ways to wait. Each runs the block and returns its value.
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

  # A stream and the socket at its other end, connected by TCP, both closed after the block. With `serve`, a thread
  # serves the other end, which is then not passed to the block.
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
    wait_until(what: "the accept") { peer } # Ruby loses the socket of a thread that is killed while accept(2) returns
    yield stream, peer
  ensure
    stream&.close
    acceptor&.kill
    wait_until(what: "the server's end") { !acceptor&.alive? }
    peer&.close
    listener&.close
  end
end
