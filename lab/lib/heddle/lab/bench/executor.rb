# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # An executor of concurrent-ruby on threads, and Heddle's.
      class Executor < Bench
        bench "executor",
          about: "concurrent-ruby's executors: empty blocks, blocks that wait, memory, on threads and on tasks",
          kinds: {"threads" => :required, "heddle" => :required},
          default_models: %w[threads:5 threads:100 heddle:100 threads:1000 heddle:1000 heddle:10000],
          peers: %w[threads]

        CASES = [
          Case.new(name: "empty blocks", unit: "a second", better: :higher,
            params: {"operation" => "empty", "count" => 100_000}),
          Case.new(name: "10,000 blocks that wait 100 ms", unit: "seconds",
            params: {"operation" => "waiting", "count" => 10_000, "seconds" => 5}),
          Case.new(name: "memory of a waiting block", unit: "KiB", params: {"operation" => "memory", "depth" => 30})
        ].freeze
        FIGURE = Metric.new(key: :figure, title: "Blocks", unit_by_case: true, better: :lower,
          value: ->(m) { m["amount"] })
        CPU = Metric.new(key: :cpu, title: "CPU µs a block", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
        private_constant :CASES, :FIGURE, :CPU

        def initialize
          super
          @scale = 1.0
        end

        # @see Bench#define_options
        def define_options(parser)
          operations_option(parser, CASES.map { |bench_case| bench_case.params["operation"] })
          scale_option(parser, "empty blocks")
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.filter_map do |bench_case|
            params = bench_case.params
            next unless @operations.nil? || @operations.include?(params["operation"])

            params = params.merge("count" => (params["count"] * @scale).ceil) if params["operation"] == "empty"
            Case.new(**bench_case.to_h.merge(params: params))
          end
        end

        # @see Bench#title
        def title = "concurrent-ruby's threads and Heddle's executor"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          notes = ["waiting blocks: threads run as many as they can in about 5 s; the figure is for all 10,000, in " \
            "proportion",
            "memory: what the process grows by for each of at most 500 blocks that wait in 90 nested calls"]
          [matrix.values(FIGURE).tap { |table| table.notes.concat(notes) }, matrix.values(CPU), matrix.troubles].compact
        end
      end
    end
  end
end
