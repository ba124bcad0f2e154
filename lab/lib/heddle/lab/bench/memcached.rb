# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Clients of memcached on the loopback, with and without a limit on each operation.
      class Memcached < Bench
        bench "memcached",
          about: "clients of memcached: the mixed workload, single operations, threads, fibers, beside a busy thread",
          kinds: %w[raw dalli dalli_untimed dalli_timeout heddle heddle_timeout heddle_deadline]
            .to_h { |kind| [kind, :none] },
          default_models: %w[dalli dalli_untimed dalli_timeout heddle heddle_timeout heddle_deadline raw],
          peers: %w[dalli dalli_untimed dalli_timeout]

        CASES = {
          "mixed" => ["mixed workload", 600],
          "get" => ["get of 1 KB", 6000],
          "set" => ["set of 1 KB", 6000],
          "get_multi" => ["get_multi of 100 keys", 800],
          "threads" => ["get by 8 threads", 6000],
          "fibers" => ["get by 100 fibers", 6000],
          "beside" => ["get beside a thread that computes", nil]
        }.freeze
        SECONDS = 1 # beside the thread
        # The cost of the client's own limit shows if one operation follows another.
        ONE_BY_ONE = %w[mixed get set get_multi].freeze
        LIMITS = %w[dalli_untimed heddle_timeout].freeze
        # The kind of limit does not change their system calls.
        COUNTED = %w[raw dalli heddle].freeze
        # The cases for which a bare socket is a useful floor.
        FLOOR = %w[get set beside].freeze
        OPERATIONS = ->(m) { m["operations"] if m["operations"].positive? }
        # Beside the busy thread, most CPU time is that thread's.
        COST = Metric.new(key: :cost, title: "CPU µs per operation", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if OPERATIONS.call(m) && !m["beside"] })
        RATE = Metric.new(key: :rate, title: "Operations a second", better: :higher,
          value: ->(m) { m["operations"] / m["wall"] })
        CALLS =
          Metric.new(key: :calls, title: "System calls that send, wait and receive, per operation", better: :lower,
            value: ->(m) { m["system_calls"]&.fdiv(m["operations"]) })
        # The columns of the table of 2008, each with its place in the measures.
        SECONDS_OF = {"user" => "user", "system" => "system", "total" => "cpu", "real" => "wall"}.map { |title, key|
          Metric.new(key: title.to_sym, title: "Seconds #{title}", better: :lower, value: ->(m) { m[key] })
        }.freeze
        private_constant :CASES, :SECONDS, :ONE_BY_ONE, :LIMITS, :COUNTED, :FLOOR, :OPERATIONS, :COST,
          :RATE, :CALLS, :SECONDS_OF

        # @see Bench#define_options
        def define_options(parser)
          operations_option(parser, CASES.keys)
          parser.on("--[no-]system-calls", "count them, by strace, once each: it takes seconds (yes)") do |counted|
            @system_calls = counted
          end
          scale_option(parser, "operations")
        end

        # @see Bench#options
        def options = {"operations" => @operations, "scale" => @scale, "system_calls" => @system_calls}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.slice(*@operations || CASES.keys).map do |operation, (name, count)|
            amount = count ? {"count" => [(count * scale).ceil, 100].max} : {"seconds" => SECONDS * [scale, 1].min}
            Case.new(name: name, params: {"operation" => operation}.merge(amount))
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          operation = bench_case.params["operation"]
          case model.kind
          when "raw" then FLOOR.include?(operation)
          when *LIMITS then ONE_BY_ONE.include?(operation)
          else true
          end
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :memcached, &)

        # The number of system calls hardly changes from round to round: they are counted in the first round, for one
        # model of each client.
        #
        # @see Bench#around
        def around(cell)
          @counting = @system_calls != false &&
            cell.round == 1 && COUNTED.include?(cell.model.kind) && !cell.model.twin?
          yield
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge("host" => @server.host, "port" => @server.port, "system_calls" => @counting)
        end

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("dalli") ? "dalli" : present.first

        # @see Bench#title
        def title = "Clients of memcached on the loopback"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          notes = ["Strings of 1 KB, stored as they are by all; raw: write and readpartial",
            "dalli: the meta protocol, socket_timeout 1, its default; _untimed: none; _timeout: " \
            "that and Timeout.timeout(1) around each operation",
            "heddle: no limit; _timeout: timeout: 1; _deadline: Heddle.deadline(1) around each operation",
            "dalli_untimed and heddle_timeout only where one operation follows another",
            "mixed: two sets, three gets (one missing), a get_multi of 10, add, incr, delete; " \
            "8 threads have a dalli each, 100 fibers share 16 of them"]
          calls = matrix.values(CALLS, spread: false)
          calls.notes << "counted by strace, where it is installed, once, in a run beside those that are measured; " \
            "what a get_multi costs hangs on how the server's replies arrive"
          [matrix.values(COST).tap { |table| table.notes.concat(notes) }, matrix.ratios(COST), matrix.values(RATE),
            matrix.ratios(RATE), calls, matrix.troubles].compact
        end

        # @see Bench#details
        def details(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          SECONDS_OF.map { |metric| matrix.values(metric) }
        end

        private

        def scale = @scale || 1
      end
    end
  end
end
