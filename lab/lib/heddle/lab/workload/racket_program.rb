# frozen_string_literal: true

require "json"
require "open3"

module Heddle
  module Lab
    class Workload
      # A program of Racket's, in a process that measures itself: it prints "ready", reads a line, works, prints its
      # milliseconds of wall and of CPU time as JSON, and reads another line before it ends.
      class RacketProgram
        # @return [String] Racket and its version
        # @raise [LoadError] when it is not installed
        def self.version
          version, = Open3.capture2e("racket", "--version")
          version[/Racket v\S+/] || version.strip
        rescue Errno::ENOENT
          raise LoadError, "racket is not installed where this Ruby runs"
        end

        # @param program [String]
        # @param arguments [Array<String>] the program's
        def initialize(program, arguments)
          @program = program
          @arguments = arguments
        end

        # @return [Array<String>]
        def command = ["racket", "-l", "racket/base", "-e", @program, *@arguments]

        # @yieldparam pid [Integer] before and after the work; optional
        # @return [Hash{String => Numeric}] seconds of wall and CPU time
        def run
          Open3.popen2e(*command) do |input, output, process|
            first = output.gets
            raise "racket: #{first || "no answer"}" unless first == "ready\n"

            yield process.pid if block_given?
            input.puts
            wall, cpu = JSON.parse(output.gets)
            yield process.pid if block_given?
            input.puts
            {"wall" => wall / 1e3, "cpu" => cpu / 1e3}
          end
        end
      end
    end
  end
end
