# frozen_string_literal: true

require "json"
require "open3"
require "socket"

module Heddle
  module Lab
    # A running load server (lab/ext/server), started and ended by whoever holds this object.
    class LoadServer
      # Where its sources are.
      SOURCE = File.expand_path("../../../ext/server", __dir__)
      PROGRAM = File.join(SOURCE, "heddle-server")
      private_constant :PROGRAM

      # Bytes after which the body of `GET /b/BYTES` repeats itself.
      PATTERN_SIZE = 1 << 20

      # @return [String] address it listens on
      attr_reader :host
      # @return [Integer]
      attr_reader :port
      # @return [Integer] its process
      attr_reader :pid

      # Starts a server on a free port of the loopback; with a block, ends it afterwards.
      # @param bind [String] IPv4 address
      # @param port [Integer] 0 for a free one
      # @param core [Integer, nil] the core to pin it to
      # @param program [String] the built server
      # @return [LoadServer, Object] the server, or the block's value
      # @raise [Error] when it cannot be built or cannot listen
      def self.start(bind: "127.0.0.1", port: 0, core: nil, program: LoadServer.program)
        server = new(bind: bind, port: port, core: core, program: program)
        return server unless block_given?

        begin
          yield server
        ensure
          server.stop
        end
      end

      # @return [String] path of the program, built first where its sources are newer
      # @raise [Error] when it is not there and cannot be built
      def self.program
        output, status = Open3.capture2e("make", "-C", SOURCE)
        return PROGRAM if status.success?

        raise Error, "cannot build the load server in #{SOURCE} (are make and a C compiler installed?):\n#{output}"
      rescue Errno::ENOENT
        return PROGRAM if File.executable?(PROGRAM)

        raise Error, "the load server is not built and make is not installed: install make and a C compiler"
      end

      # @param bytes [Integer]
      # @return [String] the body that `GET /b/BYTES` answers with
      def self.body(bytes)
        @pattern ||= (0...PATTERN_SIZE).step(16).map { |offset| format("%015x\n", offset) }.join.b.freeze
        (@pattern * (bytes / PATTERN_SIZE)) << @pattern.byteslice(0, bytes % PATTERN_SIZE)
      end

      # @see .start
      def initialize(bind:, port:, core:, program:)
        command = [*Affinity.prefix(core), program, "--bind", bind, "--port", port.to_s, "--exit-with-parent"]
        @output, output = IO.pipe
        errors, error = IO.pipe
        @pid = Process.spawn(*command, out: output, err: error)
        [output, error].each(&:close)
        line = @output.gets
        unless line
          Process.wait(@pid)
          raise Error, "the load server did not start: #{errors.read.strip}"
        end
        @host, @port = line.split.last.split(":").then { |host, number| [host, Integer(number)] }
      ensure
        errors&.close
      end

      # @return [Hash{String => Numeric}] its counts: connections, open, most_open, requests, refused, broken,
      #   cpu_user and cpu_system (seconds)
      def stats
        TCPSocket.open(@host, @port) do |socket|
          socket.write("GET /stats HTTP/1.0\r\n\r\n")
          JSON.parse(socket.read.split("\r\n\r\n", 2).last)
        end
      end

      # Ends the server and waits until it has ended.
      # @return [Process::Status, nil] nil when it had been stopped before
      def stop
        return unless @pid

        Process.kill(:TERM, @pid)
        _, status = Process.wait2(@pid)
        @pid = nil
        @output.close
        status
      end
    end
  end
end
