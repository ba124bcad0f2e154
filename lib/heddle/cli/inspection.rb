# frozen_string_literal: true

require "json"
require "optparse"
require_relative "../insight/text"
require_relative "colours"
require_relative "processes"

module Heddle
  class CLI
    # heddle ps, tree, top and why.
    class Inspection
      ARGUMENTS = {"ps" => 0..1, "tree" => 1..1, "top" => 1..1, "why" => 2..2}.freeze
      private_constant :ARGUMENTS

      # @param out [IO]
      # @param err [IO]
      def initialize(out, err)
        @out = out
        @err = err
        @colours = Colours.new(out)
      end

      # @param argv [Array<String>]
      # @return [Integer] exit status
      # @raise [Failure]
      def run(argv)
        verb, *rest = argv
        return help if rest.intersection(%w[--help -h]).any?

        options = options(verb, rest)
        numbers = rest.map { |word| number(word) }
        case verb
        when "ps" then ps(numbers.first, options)
        when "tree" then show(numbers.first, options) { |text| text.tree }
        when "why" then why(*numbers, options)
        else top(numbers.first, options)
        end
      end

      private

      def help
        @out.puts USAGE
        0
      end

      def options(verb, rest)
        options = {}
        parser = OptionParser.new
        parser.version = VERSION
        parser.on("--json") { options[:json] = true } unless verb == "top"
        parser.on("--backtraces") { options[:backtraces] = true } if verb == "ps"
        parser.on("--wait SECONDS", Float) { |seconds| options[:wait] = seconds.clamp(0, 60) }
        parser.parse!(rest)
        return options if ARGUMENTS.fetch(verb).cover?(rest.size)

        takes = (verb == "why") ? "a PID and a task's number" : "a PID"
        raise Failure.new("heddle #{verb} takes #{takes}; see heddle --help", 64)
      rescue OptionParser::ParseError => error
        raise Failure.new("#{error.message}; see heddle --help", 64)
      end

      def number(word)
        number = Integer(word, 10, exception: false)
        return number if number&.positive?

        raise Failure.new("#{word.inspect} is no number of a process or a task", 64)
      end

      def ps(pid, options)
        return list(options) unless pid

        show(pid, options) { |text| text.ps }
      end

      def list(options)
        found = Processes.all(patient("ps", options))
        return print_json(found) if options[:json]

        @out.puts found.flat_map { |snapshot| Insight::Text.new(snapshot).head }
        @out.puts "no process of this user listens: see heddle --help" if found.empty?
        0
      end

      # The process, and those of its children that listen. A process that does not listen is left out if a child does.
      def snapshots(pid, words, err = @err)
        Enumerator.new do |found|
          begin
            found << Processes.ask(pid, words)
          rescue Failure => error
            failure = error
          end
          Processes.children(pid).each do |child|
            found << Processes.ask(child, words)
            failure = nil if failure.is_a?(Absent)
          rescue Absent
            nil # it does not listen, or has ended meanwhile
          rescue Failure => error
            err&.puts "heddle: #{error.message}"
          end
          raise failure if failure
        end
      end

      def show(pid, options)
        found = snapshots(pid, patient("ps", options))
        return print_json(found) if options[:json]

        found.each_with_index do |snapshot, index|
          @out.puts unless index.zero?
          @out.puts painted(yield(Insight::Text.new(snapshot)))
        end
        0
      end

      def why(pid, number, options)
        snapshot = Processes.ask(pid, patient("why #{number}", options))
        lines = Insight::Text.new(snapshot).why(number)
        raise Failure, "process #{pid} has no task #{number}, or no more" unless lines

        return print_json([snapshot]) if options[:json]

        @out.puts painted(lines)
        0
      end

      def painted(lines) = lines.map { |line| @colours.paint(line) }

      def patient(words, options)
        words += " backtraces" if options[:backtraces]
        options[:wait] ? "#{words} wait=#{(options[:wait] * 1000).round}" : words
      end

      def print_json(snapshots)
        snapshots.each { |snapshot| @out.puts JSON.generate(snapshot.to_h) }
        0
      rescue JSON::GeneratorError => error
        raise Failure, "this is no answer of Heddle's (#{error.message})"
      end

      def top(pid, options)
        require_relative "top"
        Top.new(@out) { snapshots(pid, patient("ps", options), nil).to_a }.run
      end
    end
    private_constant :Inspection
  end
end
