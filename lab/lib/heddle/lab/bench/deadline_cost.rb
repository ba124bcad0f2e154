# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # The cost of a limit that is not reached: around an empty block, an operation of the loop, a get from memcached.
      class DeadlineCost < Bench
        bench "deadline_cost",
          about: "CPU of a Heddle.deadline and of a Timeout.timeout that are not reached",
          kinds: {"none" => :none, "deadline" => :none, "timeout" => :none, "heddle_timeout" => :none},
          default_models: %w[none deadline timeout heddle_timeout]

        WORK = {
          "nothing" => "an empty block",
          "operations" => "sleep(0), 1000 within one limit",
          "get" => "a get of 100 bytes from memcached, a raw socket"
        }.freeze
        PLACES = {"thread" => "in a plain thread", "task" => "in a task"}.freeze
        # Operations in a measurement. A plain thread's sleep(0) lasts as long as the kernel lets a timer be late, 50 µs
        # and more, and takes 2 µs of CPU time.
        COUNTS = {
          "nothing" => {"thread" => 50_000, "task" => 50_000},
          "operations" => {"thread" => 20_000, "task" => 400_000},
          "get" => {"thread" => 10_000, "task" => 10_000}
        }.freeze
        COST = Metric.new(key: :cost, title: "CPU µs per operation", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
        private_constant :WORK, :PLACES, :COUNTS, :COST

        # @see Bench#define_options
        def define_options(parser)
          scale_option(parser, "operations")
        end

        # @see Bench#options
        def options = {"scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= WORK.flat_map do |work, what|
            PLACES.map do |place, where|
              Case.new(name: "#{what}, #{where}",
                params: {"work" => work, "place" => place, "count" => count(work, place)})
            end
          end
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :memcached, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("host" => @server.host, "port" => @server.port)

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("none") ? "none" : present.first

        # @see Bench#title
        def title
          "A limit that is not reached: Heddle.deadline(10), Timeout.timeout(10), the same through heddle/timeout"
        end

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          note = "an operation is a block with its limit, a sleep(0), a get with its limit; " \
            "what a limit costs is the difference to the column none"
          [matrix.values(COST).tap { |table| table.notes << note }, matrix.ratios(COST), matrix.troubles].compact
        end

        private

        # At least one limit around its operations.
        def count(work, place) = [(COUNTS.dig(work, place) * (@scale || 1)).ceil, 1000].max
      end
    end
  end
end
