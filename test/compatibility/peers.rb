# frozen_string_literal: true

require "delegate"
require "socket"
require "support/servers"
require "support/certificates"
require_relative "peers/scripted"
require_relative "peers/http"
require_relative "peers/datagrams"

module Compatibility
  # The servers that libraries talk to. All answer at once; a proxy before them answers late, in part, or not at all.
  #
  #   peer :redis                               # a real one: the words of Servers::KINDS
  #   peer :http                                # answers with the number of the request, as JSON
  #   peer(:http) { |request| {id: request.number} }
  #   peer(:http, tls: true)                    # for a library that refuses http://
  #   peer(:scripted) { |socket| socket.write(socket.gets) }     # a thread for each connection
  #   peer(:datagrams) { |message| message }    # UDP; nil: no answer
  #   peer Mosquitto                            # a class: a subclass of Servers::Server, say
  module Peers
    OURS = {http: HTTP, scripted: Scripted, datagrams: Datagrams}.freeze
    private_constant :OURS

    # @return [#host, #port, #stop] the server, which runs. Call this before the library is loaded: scripted servers
    #   are forked.
    def self.start(peer, options, script)
      case peer
      when *Servers::KINDS.keys then Servers.public_send(peer)
      when Symbol then OURS.fetch(peer).start(**options, &script)
      else peer.new(**options, &script).start
      end
    end

    # What a client gets to connect to: the proxy, in place of the peer, whose other methods it has as well (password,
    # database).
    class Address < SimpleDelegator
      attr_reader :host, :port

      def initialize(peer, host, port)
        super(peer)
        @host, @port = host, port
      end

      # @return [String] host and port
      def to_s = "#{host}:#{port}"

      # @return [String] as an HTTP client takes it
      def url = "#{scheme}://#{tls? ? "localhost" : host}:#{port}"

      def tls? = __getobj__.respond_to?(:tls?) && __getobj__.tls?

      private

      def scheme = tls? ? "https" : "http"
    end
  end
end
