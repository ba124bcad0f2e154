# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # What the benches of database clients have in common. A subclass says which operations it has, by {#operations},
      # and the kind of its server, by {#server_kind}.
      class Queries < Bench
        # @return [Metric]
        WALL = Metric.new(key: :wall, title: "Wall µs per query", better: :lower,
          value: ->(m) { m["wall"] * 1e6 / m["operations"] })
        # @return [Metric]
        COST = Metric.new(key: :cost, title: "CPU µs per query", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] })

        # @see Bench#define_options
        def define_options(parser)
          operations_option(parser, operations.keys)
          scale_option(parser, "queries")
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= operations.slice(*@operations || operations.keys).map do |operation, (name, count)|
            count = [(count * (@scale || 1)).ceil, 100].max
            Case.new(name: name, params: {"operation" => operation, "count" => count})
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          models_of.fetch(bench_case.params["operation"], self.class.kinds.keys).include?(model.kind)
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, server_kind, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("url" => @server.url)

        private

        # @return [Hash{String => Array(String, Integer)}] operations, each with its title and its number of queries
        def operations = raise(NotImplementedError)

        # @return [Hash{String => Array<String>}] kinds of model of each operation that not all kinds have
        def models_of = raise(NotImplementedError)

        # @return [Symbol] see {Servers}
        def server_kind = raise(NotImplementedError)

        # @return [Array<Report::Table>] wall and CPU time, each with its ratios, further tables, and what went wrong
        def usual_tables(summary, notes, *further)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          [matrix.values(WALL).tap { |table| table.notes.concat(notes) }, matrix.ratios(WALL),
            matrix.values(COST), matrix.ratios(COST), *further, matrix.troubles].compact
        end
      end
    end
  end
end
