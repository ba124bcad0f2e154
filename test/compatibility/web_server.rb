# frozen_string_literal: true

require "support/puma_process"
require "support/falcon_process"

module Compatibility
  # Web servers, whose application asks the peer: a client is a server in a process of its own.
  module WebServer
    def self.application(peer) = {"config.ru" => <<~RUBY}
      require "socket"

      run(lambda do |env|
        answer = TCPSocket.open("#{peer.host}", #{peer.port}) do |socket|
          socket.puts(env["PATH_INFO"])
          socket.gets
        end
        [200, {}, [answer]]
      end)
    RUBY

    # The one server of a peer, since ten requests are to be at once in one.
    def self.of(peer)
      @server = nil unless @peer == peer.to_s
      @peer = peer.to_s
      @server ||= yield.tap(&:wait_until_ready)
    end

    def self.ask(server, number) = server.get("/heddle#{number}").body[/\d+/].to_i
  end
end
