# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Clients of PostgreSQL on the loopback.
      class PostgreSQL < Bench
        bench "postgresql",
          about: "clients of PostgreSQL: new statements, kept ones, rows, pipelines, a pool shared by tasks",
          kinds: {"heddle" => :none, "pg" => :none},
          default_models: %w[heddle pg],
          peers: %w[pg]

        CASES = {
          "new" => ["new SQL with an argument", 5000],
          "prepared" => ["prepare, execute, deallocate", 3000],
          "kept" => ["a statement that is kept", 5000],
          "rows" => ["1000 rows of int, text, timestamp", 200],
          "pipeline" => ["100 queries at once, each", 10_000],
          "pool" => ["100 tasks, one query each, a pool of 10", 10_000]
        }.freeze
        WALL = Metric.new(key: :wall, title: "Wall µs per query", better: :lower,
          value: ->(m) { m["wall"] * 1e6 / m["operations"] })
        COST = Metric.new(key: :cost, title: "CPU µs per query", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] })
        private_constant :CASES, :WALL, :COST

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--operations NAMES", Array, "which to run (#{CASES.keys.join(",")})") do |asked|
            @operations = known("operation", asked, CASES.keys)
          end
          parser.on("--scale FACTOR", Float, "times the usual number of queries (1)") do |scale|
            @scale = above_zero("--scale", scale)
          end
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.slice(*@operations || CASES.keys).map do |operation, (name, count)|
            count = [(count * (@scale || 1)).ceil, 100].max
            Case.new(name: name, params: {"operation" => operation, "count" => count})
          end
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :postgresql, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("url" => @server.url)

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("pg") ? "pg" : present.first

        # @see Bench#title
        def title = "Clients of PostgreSQL on the loopback"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          notes = ["pg: exec_params, prepare with exec_prepared and DEALLOCATE, and its pipeline mode; values are " \
            "converted by its BasicTypeMapForResults, as Heddle's are typed; its pool is the gem connection_pool, " \
            "with the tasks in Heddle's loop"]
          [matrix.values(WALL).tap { |table| table.notes.concat(notes) }, matrix.ratios(WALL),
            matrix.values(COST), matrix.ratios(COST), matrix.troubles].compact
        end
      end
    end
  end
end
