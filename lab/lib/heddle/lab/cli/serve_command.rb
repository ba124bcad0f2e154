# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle serve`: becomes the load server.
      class ServeCommand
        # @param out [IO]
        def initialize(out)
          @out = out
          @bind = "127.0.0.1"
          @port = 0
        end

        # @param argv [Array<String>]
        # @return [Integer] 0 after --help; else it does not return
        # @raise [UsageError, OptionParser::ParseError]
        def run(argv)
          rest = parser.parse(argv)
          raise UsageError, "unexpected argument #{rest.first.inspect}" unless rest.empty?
          return @out.puts(parser.help).then { 0 } if @help

          @out.flush
          exec(LoadServer.program, "--bind", @bind, "--port", @port.to_s)
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            options.banner = "Usage: heddle serve [--bind ADDRESS] [--port PORT]"
            options.on("--bind ADDRESS", "IPv4 address to listen on (#{@bind})") { |address| @bind = address }
            options.on("--port PORT", Integer, "port to listen on (a free one, which it names)") { |port| @port = port }
            options.on("-h", "--help", "this text") { @help = true }
          end
        end
      end
    end
  end
end
