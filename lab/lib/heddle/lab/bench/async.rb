# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # What Async's own API costs on Async's loop and on Heddle's.
      class Async < Bench
        bench "async",
          about: "CPU per operation of Async's tasks, and requests a second, on Async's own loop and on Heddle's",
          kinds: {"async" => :none, "heddle_async" => :none, "heddle" => :none},
          default_models: %w[async async@epoll heddle_async heddle_async@epoll heddle],
          peers: %w[async]

        CASES = {
          "an empty task" => {"operation" => "empty", "count" => 20_000},
          "a task that sleeps 1 ms" => {"operation" => "sleeping", "count" => 20_000},
          "ping-pong, 50 socket pairs" => {"operation" => "ping_pong", "count" => 40_000},
          "… each read within a timeout" => {"operation" => "timeouts", "count" => 40_000},
          "a task with a place of a semaphore" => {"operation" => "semaphore", "count" => 10_000},
          "a task of a barrier of 1000" => {"operation" => "barrier", "count" => 20_000},
          "an item through a queue" => {"operation" => "queue", "count" => 50_000},
          "a request by async-http" => {"operation" => "client", "count" => 10_000},
          "a request to falcon" => {"operation" => "falcon", "count" => 10_000}
        }.freeze
        # Heddle's own API has no semaphore, barrier or queue beside Ruby's.
        HEDDLES = %w[empty sleeping ping_pong timeouts].freeze
        COST = Metric.new(key: :cost, title: "CPU µs an operation", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
        REQUESTS = ["a request by async-http", "a request to falcon"].freeze
        RATE = Metric.new(key: :rate, title: "Requests a second", better: :higher,
          value: ->(m) { m["operations"] / m["wall"] if m["wall"].positive? })
        private_constant :CASES, :HEDDLES, :COST, :REQUESTS, :RATE

        # @see Bench#define_options
        def define_options(parser)
          operations_option(parser, CASES.values.map { |params| params["operation"] })
          scale_option(parser, "operations")
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.filter_map do |name, params|
            next unless @operations.nil? || @operations.include?(params["operation"])

            Case.new(name: name, params: params.merge("count" => (params["count"] * (@scale || 1)).ceil))
          end
        end

        # @see Bench#open
        def open(affinity)
          @server_core = affinity.server
          return yield if cases.none? { |bench_case| bench_case.params["operation"] == "client" }

          LoadServer.start(core: @server_core) do |server|
            @server = server
            yield
          end
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge({"port" => @server&.port, "server_core" => @server_core}.compact)
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          model.kind != "heddle" || HEDDLES.include?(bench_case.params["operation"])
        end

        # @see Bench#title
        def title = "What Async's tasks cost, on its own loop and on Heddle's"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: false)
          notes = ["async: Async's own loop; heddle_async: Async's tasks on Heddle's loop; heddle: Heddle's own API",
            "CPU is the process's own user and system time; one operation is a task, a write with its read, an item"]
          [matrix.values(COST).tap { |table| table.notes.concat(notes) }, matrix.ratios(COST),
            *rates(summary), matrix.troubles].compact
        end

        private

        # The other process shares no core with the measured one, which is busy all the time.
        def rates(summary)
          requests = REQUESTS & summary.cases
          return [] if requests.empty?

          matrix = Report::Matrix.new(summary, self, models_down: false, cases: requests)
          [matrix.values(RATE), matrix.ratios(RATE)]
        end
      end
    end
  end
end
