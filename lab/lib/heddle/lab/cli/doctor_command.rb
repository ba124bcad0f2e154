# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle bench doctor [BENCH...]`: says why this machine is unfit to measure on, and which models are installed.
      class DoctorCommand
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
          @help ? @out.puts(parser.help) : report(benches)
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
          @out.puts "This machine", environment, "", "What to mend", advice, "", "Models"
          each_model(benches) { |line| @out.puts(line) }
        end

        def environment
          Environment.describe(Affinity.new).merge("load average" => Environment.load_average).map do |key, value|
            "  #{key}: #{value}"
          end
        end

        def advice
          found = []
          found << "  only one core: client and server share it, and figures will vary" if Affinity.allowed.size < 2
          unless Affinity.taskset?
            found << "  taskset is not installed: nothing is pinned (Debian: apt install util-linux)"
          end
          if Environment.load_average.to_f > 0.5
            found << "  the machine is busy: load average #{Environment.load_average}"
          end
          governor = Environment.describe(Affinity.new)["governor"]
          found << "  the CPU governor is #{governor}, not performance" if governor && governor != "performance"
          hard = Process.getrlimit(:NOFILE).last
          found << "  at most #{hard} descriptors (ulimit -Hn): the scheduler bench needs 18100" if hard < 18_100
          found.empty? ? ["  nothing"] : found
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
