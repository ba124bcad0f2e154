# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # The cost of a scheduler's operations through plain Ruby calls.
      class Scheduler < Bench
        bench "scheduler",
          about: "CPU per operation of a fiber scheduler through plain Ruby calls",
          kinds: {"threads" => :none, "heddle" => :none, "async" => :none, "carbon_fiber" => :none,
                  "uringmachine" => :none},
          default_models: %w[threads heddle heddle@epoll async async@epoll carbon_fiber uringmachine],
          peers: %w[async carbon_fiber uringmachine]

        MICROSECONDS = "µs"
        MILLISECONDS = "ms" # of wall time, until all is done
        CASES = [
          Case.new(name: "ping-pong, 50 socket pairs", unit: MICROSECONDS,
            params: {"operation" => "ping_pong", "pairs" => 50, "count" => 60_000}),
          Case.new(name: "queue between two fibers", unit: MICROSECONDS,
            params: {"operation" => "queue", "count" => 100_000}),
          Case.new(name: "Fiber.schedule, empty block", unit: MICROSECONDS,
            params: {"operation" => "schedule", "count" => 20_000}),
          Case.new(name: "a task: Heddle.spawn, else Fiber.schedule", unit: MICROSECONDS,
            params: {"operation" => "spawn", "count" => 20_000}),
          Case.new(name: "timers at once", unit: MICROSECONDS, params: {"operation" => "timers", "count" => 10_000}),
          Case.new(name: "sleep(0), 10 fibers", unit: MICROSECONDS,
            params: {"operation" => "sleep_zero", "fibers" => 10, "count" => 200_000}),
          Case.new(name: "a permit, 20 fibers for 2", unit: MICROSECONDS,
            params: {"operation" => "permits", "count" => 40_000}),
          Case.new(name: "a resource of a pool, 20 fibers for 2", unit: MICROSECONDS,
            params: {"operation" => "resources", "count" => 40_000}),
          Case.new(name: "accept among busy clients", unit: MILLISECONDS,
            params: {"operation" => "accept", "busy" => 50, "count" => 40}),
          Case.new(name: "fan-out among busy tasks", unit: MILLISECONDS,
            params: {"operation" => "fan_out", "busy" => 50, "count" => 40}),
          Case.new(name: "posted from a thread", unit: MILLISECONDS,
            params: {"operation" => "post", "busy" => 50, "count" => 40}),
          Case.new(name: "RSS per fiber at a socket", unit: "KiB", params: {"operation" => "memory", "count" => 9000}),
          Case.new(name: "most fibers at once", unit: "fibers", better: :higher,
            params: {"operation" => "most_fibers", "count" => 100_000})
        ].freeze
        # Cases in which only some kinds make sense.
        ONLY = {"most_fibers" => %w[heddle async carbon_fiber uringmachine]}.freeze
        COST = Metric.new(key: :cost, title: "Cost per operation", unit_by_case: true, better: :lower,
          value: ->(m) { m["amount"] || (m["cpu"] * 1e6 / m["operations"] if m["operations"].positive?) })
        private_constant :MICROSECONDS, :MILLISECONDS, :CASES, :ONLY, :COST

        def initialize
          super
          @scale = 1.0
        end

        # @see Bench#define_options
        def define_options(parser)
          operations_option(parser, CASES.map { |bench_case| bench_case.params["operation"] })
          scale_option(parser, "operations timed")
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.select do |bench_case|
            @operations.nil? || @operations.include?(bench_case.params["operation"])
          end.map do |bench_case|
            scale = (bench_case.unit == MICROSECONDS) ? @scale : 1
            count = (bench_case.params["count"] * scale).ceil
            Case.new(**bench_case.to_h.merge(params: bench_case.params.merge("count" => count)))
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          kinds = ONLY[bench_case.params["operation"]]
          kinds.nil? || kinds.include?(model.kind)
        end

        # @see Bench#repeats?
        def repeats?(bench_case) = [MICROSECONDS, MILLISECONDS].include?(bench_case.unit)

        # @see Bench#title
        def title = "What a fiber scheduler's operations cost, through plain Ruby calls"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          notes = ["CPU is the process's own user and system time; one operation is a write with its read, " \
            "a push with its pop, a sleep, a fiber",
            "permits: the model's own semaphore, else a SizedQueue; resources: Heddle's pool, else connection_pool",
            "among 50 tasks that compute 0.2 ms a turn: milliseconds until the last of 40 is accepted and answered, " \
            "spawned and ended, posted and ended",
            "memory and most fibers come out the same each time: measured in the first round alone"]
          [matrix.values(COST).tap { |table| table.notes.concat(notes) }, matrix.ratios(COST),
            limits(summary), matrix.troubles].compact
        end

        private

        # The errors of the models that ran out of fibers.
        def limits(summary)
          rows = summary.record.rounds.filter_map do |round|
            message = round.measures && round.measures["limit_message"]
            [round.model, Report::Matrix.figure(round.measures["amount"]), message] if message && !round.twin
          end.uniq(&:first)
          unless rows.empty?
            Report::Table.new(title: "What the limit says", columns: %w[model fibers message],
              rows: rows, notes: [], prose: true)
          end
        end
      end
    end
  end
end
