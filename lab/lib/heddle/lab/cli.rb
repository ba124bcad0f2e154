# frozen_string_literal: true

require "optparse"
require_relative "cli/help"
require_relative "cli/bench_command"
require_relative "cli/ruby_comparison"
require_relative "cli/compare_command"
require_relative "cli/draw_command"
require_relative "cli/history_report"
require_relative "cli/report_command"
require_relative "cli/serve_command"
require_relative "cli/doctor_command"

module Heddle
  module Lab
    # The commands that this gem adds to `heddle`.
    class CLI
      USAGE = <<~TEXT
        Usage: heddle COMMAND [options]

          heddle bench NAME    measure; heddle bench list names the benches
          heddle report        the runs of any bench as one page, to choose what is drawn (--html DIR); or
                               combine files of bench http, and draw them by site and by implementation; or
                               how the figures went from revision to revision (--history DIR)
          heddle compare A B   in what two runs of a bench differ, beyond their noise
          heddle bench draw    the graphs of recorded runs
          heddle bench doctor  is this machine fit to measure on, and which peers are installed
          heddle serve         run the load server: GET /MS answers after MS milliseconds,
                               GET /b/BYTES with a body of that many bytes, and more;
                               or, with --proxy, a proxy that makes any server slow, silent or broken

          heddle COMMAND --help says more
      TEXT
      COMMANDS = "bench, compare, report and serve"
      private_constant :COMMANDS

      # @param argv [Array<String>]
      # @param out [IO]
      # @param err [IO]
      # @return [Integer] exit status: 0; 1 if a measurement failed; 64 if the command line names something unknown; 69
      #   if something needed is missing; 130 when interrupted
      def self.run(argv, out: $stdout, err: $stderr)
        new(out, err).run(argv)
      rescue OptionParser::ParseError, UsageError => error
        err.puts "heddle: #{error.message}", "heddle: see heddle #{[*command_of(argv), "--help"].join(" ")}"
        64
      rescue Error => error
        err.puts "heddle: #{error.message}"
        error.status
      rescue Errno::EPIPE
        0
      rescue Interrupt
        130
      end

      # The words of a command line whose own --help there is.
      def self.command_of(argv)
        command, name = argv
        return ["bench", name] if command == "bench" && (Bench.all.key?(name) || %w[draw report doctor].include?(name))

        [command].select { |one| %w[compare report serve].include?(one) }
      end
      private_class_method :command_of

      # @param out [IO]
      # @param err [IO]
      def initialize(out, err)
        @out = out
        @err = err
      end

      # @param argv [Array<String>]
      # @return [Integer]
      def run(argv)
        command, *rest = argv
        case command
        when "bench" then bench(rest)
        when "compare" then CompareCommand.new(@out, @err).run(rest)
        when "report" then ReportCommand.new(@out, @err).run(rest)
        when "serve" then ServeCommand.new(@out).run(rest)
        when "--help", "-h", "help" then Help.print(USAGE, @out)
        when nil then raise UsageError, "no command given; the commands are #{COMMANDS}"
        else raise UsageError, "unknown command #{command.inspect}; the commands are #{COMMANDS}"
        end
      end

      private

      def bench(argv)
        name, *rest = argv
        case name
        when "list" then alone(rest) { list }
        when "draw" then DrawCommand.new(@out).run(rest)
        when "report" then run(argv)
        when "doctor" then DoctorCommand.new(@out).run(rest)
        when nil then raise UsageError, "no bench given; the benches are #{Bench.all.keys.join(", ")}"
        when "--help", "-h" then Help.print(USAGE, @out)
        else BenchCommand.new(Bench.find(name).new, @out, @err).run(rest)
        end
      end

      # Runs a command that has neither arguments nor options.
      def alone(rest)
        return Help.print(USAGE, @out) if rest.intersect?(%w[--help -h])
        raise UsageError, "unexpected argument #{rest.first.inspect}" unless rest.empty?

        yield
      end

      def list = Help.print(Bench.all.map { |id, bench| "#{id.ljust(14)}#{bench.about}\n" }.join, @out)
    end
  end
end
