# frozen_string_literal: true

require "json"
require "socket"
require_relative "server_process"

module Heddle
  module Lab
    # A running load server: `GET /MS` answers after MS milliseconds, `GET /b/BYTES` with a body, `/c/BYTES` with the
    # same in chunks, `/z/BYTES` compressed by gzip; `PUT /u` takes a body and says if it equals that of `/b/BYTES`.
    class LoadServer < ServerProcess
      # Bytes after which the body of `GET /b/BYTES` repeats itself.
      PATTERN_SIZE = 1 << 20

      # @param bytes [Integer]
      # @return [String] the body of the answer to `GET /b/BYTES`
      def self.body(bytes)
        @pattern ||= (0...PATTERN_SIZE).step(16).map { |offset| format("%015x\n", offset) }.join.b.freeze
        (@pattern * (bytes / PATTERN_SIZE)) << @pattern.byteslice(0, bytes % PATTERN_SIZE)
      end

      # Asks a load server, also one of another process. The question is a connection, too.
      #
      # @return [Hash{String => Numeric}] its counts: connections, open, most_open, requests, refused, broken,
      #   cpu_user and cpu_system (seconds)
      def self.stats(host, port)
        TCPSocket.open(host, port) do |socket|
          socket.write("GET /stats HTTP/1.0\r\n\r\n")
          JSON.parse(socket.read.split("\r\n\r\n", 2).last)
        end
      end

      # @param bind [String] IPv4 address
      # @param port [Integer] 0 for a free one
      # @param core [Integer, nil] the core to pin it to
      # @param program [String] the built server
      def initialize(bind: "127.0.0.1", port: 0, core: nil, program: ServerProcess.program)
        launch("load server", [], bind: bind, port: port, core: core, program: program)
      end

      # @see .stats
      def stats = self.class.stats(@host, @port)
    end
  end
end
