# frozen_string_literal: true

module Heddle
  module Lab
    class CLI
      # `heddle bench doctor`: what speaks against measuring here, and who is there to be measured.
      class Doctor
        # @return [Array<String>] lines
        def report
          ["This machine", *environment, "", "What to mend", *advice, "", "Models", *models]
        end

        private

        def environment
          Environment.describe(Affinity.new).merge("load average" => Environment.load_average).map { |key, value| "  #{key}: #{value}" }
        end

        def advice
          found = []
          found << "  only one core: client and server share it, and figures will vary" if Affinity.allowed.size < 2
          found << "  taskset is not installed: nothing is pinned (Debian: apt install util-linux)" unless Affinity.taskset?
          found << "  the machine is busy: load average #{Environment.load_average}" if Environment.load_average.to_f > 0.5
          governor = Environment.describe(Affinity.new)["governor"]
          found << "  the CPU governor is #{governor}, not performance" if governor && governor != "performance"
          hard = Process.getrlimit(:NOFILE).last
          found << "  at most #{hard} descriptors (ulimit -Hn): the scheduler bench needs 18100" if hard < 18_100
          found.empty? ? ["  nothing"] : found
        end

        def models
          child = Child.new(deadline: 20)
          Bench.all.flat_map do |id, bench|
            bench.default_models.map do |name|
              model = Model.parse(name, bench.kinds)
              answer = child.run({"bench" => id, "kind" => model.kind, "argument" => model.argument, "params" => {}, "probe" => true},
                environment: model.environment)
              "  #{id} #{name}: #{answer["error"] || answer["versions"].join(", ")}"
            end
          end
        end
      end
    end
  end
end
