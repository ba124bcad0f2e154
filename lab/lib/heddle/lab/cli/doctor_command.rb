# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle bench doctor [BENCH...]`: says why this machine is unfit to measure on, and which models are installed.
      class DoctorCommand
        LABELS = {"load_before" => "load average"}.freeze
        private_constant :LABELS

        # @param out [IO]
        def initialize(out)
          @out = out
        end

        # @param argv [Array<String>]
        # @return [Integer] 0
        # @raise [UsageError, OptionParser::ParseError]
        def run(argv)
          names = parser.parse(argv)
          benches = names.empty? ? Bench.all : names.to_h { |name| [name, Bench.find(name)] }
          return Help.print(parser.help, @out) if @help

          report(benches)
          0
        end

        private

        def parser
          @parser ||= OptionParser.new do |options|
            options.banner = "Usage: heddle bench doctor [BENCH...]\nSays what makes this machine unfit to measure " \
              "on, and which models of these benches, or of all, are installed.\n\n"
            options.on("-h", "--help", "this text") { @help = true }
          end
        end

        def report(benches)
          environment = Environment.describe(Affinity.new).merge("load_before" => Environment.load_average)
          @out.puts "This machine", environment.map { |key, value| "  #{LABELS.fetch(key, key)}: #{value}" }
          @out.puts "", "What to mend", advice(environment).map { |line| "  #{line}" }, "", "Models"
          each_model(benches) { |line| @out.puts(line) }
        end

        def advice(environment)
          doubts = Environment.doubts(environment)
          doubts << "taskset is not installed (Debian: apt install util-linux)" unless Affinity.taskset?
          doubts.empty? ? ["nothing"] : doubts
        end

        # Each model loads its library in a process of its own, which takes some seconds for all.
        def each_model(benches)
          child = Child.new(deadline: 20)
          benches.each do |id, bench|
            bench.default_models.each do |name|
              model = Model.parse(name, bench.kinds)
              answer = child.run({"bench" => id, "kind" => model.kind, "argument" => model.argument,
                "params" => {}, "probe" => true},
                environment: model.environment)
              yield "  #{id} #{name}: #{answer["error"] || answer["versions"].join(", ")}"
            end
          end
        end
      end
    end
  end
end
