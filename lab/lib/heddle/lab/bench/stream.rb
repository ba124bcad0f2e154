# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # What a request and its reply cost by each way of having them end in time.
      class Stream < Bench
        bench "stream",
          about: "CPU and rate of a get of 100 bytes by sockets and streams, with and without a limit of one second",
          kinds: %w[raw select timeout stream stream_timeout stream_exchange stream_deadline].to_h { |kind| [kind, :none] },
          default_models: %w[raw select timeout stream stream_timeout stream_exchange stream_deadline]

        WHERE = {
          "thread" => ["in a plain thread", {"count" => 20_000}],
          "task" => ["in a task", {"count" => 20_000}],
          "beside" => ["beside a thread that computes", {"seconds" => 2}]
        }.freeze
        # Beside the thread the processor's time is that thread's.
        COST = Metric.new(key: :cost, title: "CPU µs a get", better: :lower,
          value: ->(m) { m["cpu"] * 1e6 / m["operations"] if m["operations"].positive? && !m["beside"] })
        RATE = Metric.new(key: :rate, title: "Gets a second", better: :higher, value: ->(m) { m["operations"] / m["wall"] })
        private_constant :WHERE, :COST, :RATE

        # @see Bench#cases
        def cases
          @cases ||= WHERE.map do |place, (where, amount)|
            Case.new(name: where, params: {"place" => place}.merge(amount))
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
          notes = ["raw: write and readpartial; select: IO.select(…, 1) in between; timeout: raw within Timeout.timeout(1)",
            "stream: no limit; stream_timeout: timeout: 1; stream_exchange: exchange(timeout: 1); stream_deadline: within Heddle.deadline(1)"]
          [matrix.values(COST).tap { |table| table.notes.concat(notes) }, matrix.ratios(COST), matrix.values(RATE), matrix.troubles].compact
        end
      end
    end
  end
end
