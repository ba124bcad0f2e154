# frozen_string_literal: true

require "socket"

# A database server on a port of its own, whose part a test plays. A subclass has `Peer`, which stands for a client: it
# is made of the connection's socket and number.
class ScriptedServer
  # Ways in which a server stops in the middle.
  ENDINGS = {
    close: ->(peer) { peer.close },
    reset: lambda do |peer|
      peer.socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      peer.close
    end,
    stall: ->(_) { sleep }
  }.freeze

  # Plays for the length of the block, and raises what failed in it.
  def self.play(script)
    server = new(&script)
    yield server
  ensure
    server&.close
    raise server.errors.pop if server && !server.errors.empty?
  end

  attr_reader :port, :errors, :accepted

  # The block plays the server's part of each connection, in a thread each.
  def initialize(&play)
    @listener = TCPServer.new("127.0.0.1", 0)
    @port = @listener.addr[1]
    @errors = Thread::Queue.new
    @threads = []
    @accepted = 0
    @acceptor = Thread.new do
      loop do
        socket = @listener.accept
        @accepted += 1
        socket.setsockopt(:TCP, :NODELAY, true)
        peer = self.class::Peer.new(socket, @accepted)
        @threads << Thread.new { serve(peer, play) }
      end
    rescue IOError
      nil
    end
  end

  def close
    @listener.close
    @acceptor.kill.join
    @threads.each(&:kill).each(&:join)
  end

  private

  def serve(peer, play)
    play.call(peer)
  rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
    nil # the client has gone away
  rescue Minitest::Assertion, StandardError => error
    @errors << error
  ensure
    peer.close
  end

  # The client, as the server sees it.
  class Peer
    attr_accessor :socket

    # @return [Integer] which connection of the server it is, from 1
    attr_reader :number

    def initialize(socket, number = 1)
      @socket = socket
      @number = number
    end

    def close = @socket.close

    def raw(bytes)
      @socket.write(bytes)
      @socket.flush
    end
  end
end
