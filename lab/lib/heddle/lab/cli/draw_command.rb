# frozen_string_literal: true

require "fileutils"

module Heddle
  module Lab
    class CLI
      # `heddle bench draw FILES`: the graphs of recorded runs.
      class DrawCommand
        # @param out [IO]
        def initialize(out)
          @out = out
          @directory = "."
        end

        # @param argv [Array<String>]
        # @return [Integer] 0
        # @raise [UsageError, OptionParser::ParseError, Error]
        def run(argv)
          files = parser.parse(argv)
          return Help.print(parser.help, @out) if @help
          raise UsageError, "no files given; heddle bench NAME --out DIR leaves a .json" if files.empty?

          FileUtils.mkdir_p(@directory)
          files.each { |file| draw(file) }
          0
        rescue SystemCallError => error
          raise Error, "cannot draw: #{error.message}"
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            options.banner = "Usage: heddle bench draw FILE... [options]\nDraws the .json files of benches as .svg: " \
              "delay and http have graphs.\n\n"
            options.on("--out DIR", "where to write NAME-GRAPH.svg (here)") { |directory| @directory = directory }
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def draw(file)
          record = Record.read(file)
          graphs = BenchCommand.new(Bench.find(record.header["bench"]).new, @out, @out).graphs(record)
          raise Error, "#{file}: bench #{record.header["bench"]} has no graphs" if graphs.empty?

          written = Report::BarChart.write(graphs, @directory, File.basename(file, ".json"))
          @out.puts(written.values.map { |name| File.join(@directory, name) })
        end
      end
    end
  end
end
