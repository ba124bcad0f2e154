# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Clients of MySQL and MariaDB on the loopback.
      class DB < Bench
        bench "db",
          about: "clients of MariaDB: new statements, kept ones, rows, pipelines, a pool of fibers",
          kinds: {"raw" => :none, "heddle" => :none, "mysql2" => :none, "mysql2_text" => :none, "trilogy" => :none},
          default_models: %w[raw heddle mysql2 mysql2_text trilogy],
          peers: %w[mysql2 mysql2_text trilogy]

        CASES = {
          "new" => ["new SQL with an argument", 5000],
          "kept" => ["a statement that is kept", 5000],
          "rows" => ["1000 rows of int, varchar, datetime", 200],
          "pipeline" => ["100 queries at once, each", 10_000],
          "pool" => ["50 tasks, a pool of 50, sleep(0.01)", 500]
        }.freeze
        # The models that can run these cases.
        ONLY = {"new" => %w[heddle mysql2 mysql2_text trilogy], "kept" => %w[raw heddle mysql2],
                "pipeline" => %w[heddle], "pool" => %w[raw heddle]}.freeze
        WALL = Metric.new(key: :wall, title: "Wall µs per query", better: :lower,
          value: ->(m) { m["wall"] * 1e6 / m["operations"] })
        COST = Metric.new(key: :cost, title: "CPU µs per query", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] })
        # Only for the case whose ideal time is known.
        SLOWNESS = Metric.new(key: :slowness, title: "Wall as a multiple of the ideal, 10 ms for 50 queries at once",
          better: :lower, value: ->(m) { m["ideal"] && m["wall"] / m["operations"] / m["ideal"] })
        private_constant :CASES, :ONLY, :WALL, :COST, :SLOWNESS

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
            Case.new(name: name, params: {"operation" => operation, "count" => [(count * (@scale || 1)).ceil, 100].max})
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          ONLY.fetch(bench_case.params["operation"], self.class.kinds.keys).include?(model.kind)
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :mariadb, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("url" => @server.url)

        # @see Bench#reference_for
        def reference_for(_, present) = %w[mysql2 mysql2_text].find { |name| present.include?(name) } || present.first

        # @see Bench#title
        def title = "Clients of MariaDB on the loopback"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          notes = ["mysql2: prepare, execute, close, as for each new statement with arguments; mysql2_text, trilogy: " \
            "the values pasted into the SQL",
            "raw, the floor: Heddle's own bytes over plain sockets, by write, select and read alone, " \
            "and nothing is understood of the answers; of rows, the same objects made by a few lines of C"]
          [matrix.values(WALL).tap { |table| table.notes.concat(notes) }, matrix.ratios(WALL),
            matrix.values(COST), matrix.ratios(COST), slowness(summary), matrix.troubles].compact
        end

        private

        def slowness(summary)
          name = CASES.fetch("pool").first
          if summary.cases.include?(name)
            Report::Matrix.new(summary, self, models_down: false, cases: [name]).values(SLOWNESS)
          end
        end
      end
    end
  end
end
