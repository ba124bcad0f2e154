# frozen_string_literal: true

require_relative "version"

module Heddle
  # The `heddle` command. What it does by itself is to look into processes; the gem heddle-lab has the other commands.
  #
  # @api private
  class CLI
    USAGE = <<~TEXT
      Usage: heddle COMMAND [options]

        heddle ps [PID]      what the tasks of a process do, and of its children; without a PID: which processes answer
        heddle tree PID      each task beneath the one that started it
        heddle top PID       the same as ps, once a second
        heddle why PID TASK  what a task waits for, what that waits for, and where
        heddle doctor        which compiled code of Heddle runs here, its backends, and why one is not used

        --json               ps, tree and why: one JSON object for each process
        --backtraces         ps: where each task is
        --wait SECONDS       how long Ruby code of the process has to add its part: 0.3 without this

        heddle --help, heddle --version

      A process answers once it has called Heddle.insight, or was started with HEDDLE_INSIGHT=1.
    TEXT
    LAB = %w[bench compare report serve].freeze
    private_constant :LAB

    # An error that the user can correct: the command prints only the message.
    class Failure < StandardError
      # @return [Integer] exit status: 64 for a wrong command line, 69 if the process does not answer
      attr_reader :status

      # @param message [String]
      # @param status [Integer]
      def initialize(message, status = 69)
        super(message)
        @status = status
      end
    end

    class << self
      # @param argv [Array<String>]
      # @return [Integer] exit status: 0; 64 for a wrong command line; 69 if a process does not answer, or if what a
      #   command needs is missing; 130 when interrupted; those of the lab's commands
      def run(argv, out: $stdout, err: $stderr)
        case argv.first
        when "ps", "tree", "top", "why" then inspect(argv, out, err)
        when "doctor" then doctor(argv.drop(1), out)
        when "--help", "-h", "help" then help(out)
        when "--version", "-v" then version(out)
        when *LAB then lab(argv, out, err)
        else
          err.puts argv.empty? ? "heddle: no command given" : "heddle: unknown command #{argv.first.inspect}", USAGE
          64
        end
      rescue Failure => error
        err.puts "heddle: #{error.message}"
        error.status
      rescue Errno::EPIPE
        0
      rescue Interrupt
        130
      end

      private

      def inspect(argv, out, err)
        require_relative "cli/inspection"
        Inspection.new(out, err).run(argv)
      end

      def doctor(rest, out)
        return help(out) if rest.intersect?(%w[--help -h])
        raise Failure.new("doctor takes no arguments", 64) if rest.any?

        begin
          require_relative "doctor"
        rescue LoadError => error
          raise Failure, error.message
        end
        out.puts Doctor.lines
        0
      end

      def help(out)
        out.puts USAGE
        out.puts "", lab? ? Lab::CLI::USAGE : "The gem heddle-lab adds the commands #{LAB.join(", ")}."
        0
      end

      def version(out)
        out.puts "heddle #{VERSION}"
        out.puts "heddle-lab #{Lab::VERSION}" if lab?
        0
      end

      def lab(argv, out, err)
        raise Failure, "heddle #{argv.first} is a command of the gem heddle-lab: gem install heddle-lab" unless lab?

        Lab::CLI.run(argv, out: out, err: err)
      end

      def lab?
        require "heddle/lab"
        true
      rescue LoadError => error
        raise unless error.path == "heddle/lab"

        false
      end
    end
  end
end
