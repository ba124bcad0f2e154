# frozen_string_literal: true

require "json"
require_relative "server_process"

module Heddle
  module Lab
    # A running proxy in front of a server of any kind, which passes the server's replies on late, slowly or in part.
    #
    #   proxy = ShapingProxy.start("127.0.0.1:3306", delay: 0.001)   # a round trip takes a millisecond more
    #   proxy.shape(stall_at: 3)                                     # three more bytes of each connection, then silence
    #   proxy.pass
    class ShapingProxy < ServerProcess
      # Settings in seconds, which the program takes in milliseconds.
      TIMES = %i[delay jitter drip].freeze
      # Settings in bytes, `rate` in bytes a second.
      SIZES = %i[rate stall_at reset_at close_at].freeze
      private_constant :TIMES, :SIZES

      # @param upstream [String] the server behind the proxy: `HOST:PORT`, `[IPv6]:PORT` or `unix:PATH`
      # @param bind [String] IPv4 address
      # @param port [Integer] 0 for a free one
      # @param core [Integer, nil] the core to pin it to
      # @param idle [Integer] seconds after which a connection without traffic is closed; 0 for never
      # @param program [String] the built server
      # @param settings [Hash] see {#shape}
      def initialize(upstream, bind: "127.0.0.1", port: 0, core: nil, idle: 600,
        program: ServerProcess.program, **settings)
        arguments = ["--proxy", upstream, "--idle", idle.to_s, "--control"]
        ShapingProxy.words(settings).each_slice(2) { |name, value| arguments << "--#{name}" << value }
        launch("proxy", arguments, bind: bind, port: port, core: core, program: program, input: true)
      end

      # Changes the settings, also for open connections, whose bytes are counted from now on.
      # @param delay [Numeric] seconds for which the proxy holds each byte
      # @param jitter [Numeric] at most this many seconds more, random for each piece; bytes keep their order
      # @param rate [Integer] bytes a second on each connection
      # @param drip [Numeric] seconds from one byte to the next
      # @param stall_at [Integer] how many bytes pass on each connection; after them, neither a byte nor an end passes
      # @param reset_at [Integer] resets both sides instead of passing the byte at that offset
      # @param close_at [Integer] closes both sides instead of passing the byte at that offset
      # @param direction [String] what the settings apply to: "replies" (the default), "requests" or "both"
      # @raise [Error] when the settings make no sense
      def shape(**settings)
        command(ShapingProxy.words(settings).join(" "))
        self
      end

      # Passes everything on at once.
      def pass
        command("pass")
        self
      end

      # Resets all connections, on both sides.
      def reset
        command("reset")
        self
      end

      # @return [Hash{String => Numeric}] its counts: connections, open, most_open, failed (to connect to the server
      #   behind), resets, idle, request_bytes, reply_bytes, cpu_user and cpu_system (seconds)
      def stats = JSON.parse(ask("stats"))

      # @api private
      # @return [Array<String>] settings as the program takes them
      def self.words(settings)
        settings.flat_map do |name, value|
          unless TIMES.include?(name) || SIZES.include?(name) || name == :direction
            known = [*TIMES, *SIZES, :direction].join(", ")
            raise ArgumentError, "unknown setting #{name.inspect}; choose from #{known}"
          end

          [name.to_s.tr("_", "-"), TIMES.include?(name) ? format("%.6f", value * 1000) : value.to_s]
        end
      end

      private

      def command(line)
        answer = ask(line)
        raise Error, "the proxy refused #{line.inspect}: #{answer.delete_prefix("error: ")}" unless answer == "ok"
      end

      def ask(line)
        @input.puts(line)
        @output.gets&.chomp or raise Error, "the proxy has ended"
      end
    end
  end
end
