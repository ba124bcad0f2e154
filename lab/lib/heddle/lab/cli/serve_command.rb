# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle serve`: becomes the load server, or the proxy.
      class ServeCommand
        # The proxy's options of heddle-server: the option, its argument, its meaning.
        SHAPE = [
          ["delay", "MS", "pass each byte of a reply on MS milliseconds after it came"],
          ["jitter", "MS", "up to MS more, drawn for each piece"],
          ["rate", "BYTES", "at most BYTES bytes a second on each connection"],
          ["drip", "MS", "one byte every MS milliseconds"],
          ["stall-at", "BYTE", "pass BYTE bytes on each connection, then neither a byte nor an end"],
          ["reset-at", "BYTE", "reset both sides instead of passing the byte at that offset"],
          ["close-at", "BYTE", "close both sides instead of passing the byte at that offset"],
          ["direction", "WHICH", "what the settings apply to: replies, requests or both (replies)"],
          ["idle", "SECONDS", "close connections without traffic for SECONDS seconds (600)"]
        ].freeze
        private_constant :SHAPE

        # @param out [IO]
        def initialize(out)
          @out = out
          @bind = "127.0.0.1"
          @port = 0
          @arguments = []
        end

        # @param argv [Array<String>]
        # @return [Integer] 0 after --help; else it does not return
        # @raise [UsageError, OptionParser::ParseError]
        def run(argv)
          rest = parser.parse(argv)
          raise UsageError, "unexpected argument #{rest.first.inspect}" unless rest.empty?
          return Help.print(parser.help, @out) if @help

          @out.flush
          exec(ServerProcess.program, "--bind", @bind, "--port", @port.to_s, *@arguments)
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            options.banner = "Usage: heddle serve [--bind ADDRESS] [--port PORT] [--proxy SERVER [shape]]\n\n" \
              "GET /MS answers after MS milliseconds, GET /b/BYTES with a body of that many bytes, " \
              "/c/BYTES with the same\n" \
              "in chunks, /z/BYTES compressed by gzip; PUT /u takes a body and says whether it was that of /b.\n\n"
            options.on("--bind ADDRESS", "IPv4 address to listen on (#{@bind})") { |address| @bind = address }
            options.on("--port PORT", Integer, "port to listen on (a free one, which it names)") { |port| @port = port }
            define_proxy(options)
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def define_proxy(options)
          options.separator("\nA proxy instead, in front of a server of any kind:")
          options.on("--proxy SERVER", "the server behind the proxy: HOST:PORT or unix:PATH") do |server|
            @arguments.push("--proxy", server)
          end
          SHAPE.each do |name, argument, meaning|
            options.on("--#{name} #{argument}", meaning) { |value| @arguments.push("--#{name}", value) }
          end
          options.on("--control", "read settings from stdin, line by line: delay 200 stall-at 7;",
            "or pass, reset, stats") { @arguments << "--control" }
        end
      end
    end
  end
end
