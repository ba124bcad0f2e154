# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # The cost of a request and its reply, by each way to limit their time.
      class Stream < Bench
        MODELS = %w[raw select timeout io_stream io_stream_timeout stream stream_timeout stream_exchange
          stream_deadline].freeze
        private_constant :MODELS

        bench "stream",
          about: "CPU and rate of a get of 100 bytes by sockets and streams, with and without a limit of one second",
          kinds: MODELS.to_h { |kind| [kind, :none] },
          default_models: MODELS,
          peers: %w[io_stream io_stream_timeout]

        CASES = {
          "thread" => {"place" => "thread", "count" => 10_000},
          "thread, by lines" => {"place" => "thread", "lines" => true, "count" => 10_000},
          "task" => {"place" => "task", "count" => 10_000},
          "task, by lines" => {"place" => "task", "lines" => true, "count" => 10_000},
          "beside a busy thread" => {"place" => "beside", "seconds" => 1}
        }.freeze
        # Beside the busy thread, most CPU time is that thread's.
        COST = Metric.new(key: :cost, title: "CPU µs a get", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? && !m["beside"] })
        RATE =
          Metric.new(key: :rate, title: "Gets a second", better: :higher, value: ->(m) { m["operations"] / m["wall"] })
        private_constant :CASES, :COST, :RATE

        # @see Bench#define_options
        def define_options(parser)
          scale_option(parser, "gets")
        end

        # @see Bench#options
        def options = {"scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.map do |name, params|
            amount = if params["count"]
              {"count" => [(params["count"] * scale).ceil, 100].max}
            else
              {"seconds" => params["seconds"] * [scale, 1].min}
            end
            Case.new(name: name, params: params.merge(amount))
          end
        end

        # A select bounds the first read, not a line; async's limits need a task. Beside a busy thread the GVL causes
        # nearly all of the cost, and a stream's kind of limit none.
        #
        # @see Bench#applies?
        def applies?(model, bench_case)
          case model.kind
          when "select" then !bench_case.params["lines"]
          when "io_stream_timeout" then bench_case.params["place"] == "task"
          when "stream_timeout", "stream_exchange", "stream_deadline" then bench_case.params["place"] != "beside"
          else true
          end
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :memcached, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("host" => @server.host, "port" => @server.port)

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("raw") ? "raw" : present.first

        # @see Bench#title
        def title = "A request and its reply: sockets and streams, with and without a limit of one second"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          notes = ["raw: a TCPSocket's write and readpartial; by lines its gets, read and gets; " \
            "select: IO.select(…, 1) in between; timeout: raw within Timeout.timeout(1)",
            "io_stream: IO::Stream of the gem io-stream, its tasks async's; io_stream_timeout: " \
            "within async's with_timeout(1). Tasks of all others are Heddle's",
            "stream: no limit; stream_timeout: timeout: 1; stream_exchange: exchange(timeout: 1); stream_deadline: " \
            "within Heddle.deadline(1)"]
          [matrix.values(COST).tap { |table| table.notes.concat(notes) }, matrix.ratios(COST),
            matrix.values(RATE), matrix.ratios(RATE), matrix.troubles].compact
        end

        private

        def scale = @scale || 1
      end
    end
  end
end
