# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # The case of Racket's client of 2009: the cost of a close in its own packet, by Nagle's algorithm and a delayed
      # ACK.
      class Stall < Bench
        bench "stall",
          about: "one new statement after another: Nagle on and off, the close sent at once or riding, " \
          "one flight or two",
          kinds: %w[nagle_flushed nagle_riding nodelay_flushed nodelay_riding one_flight_flushed one_flight mysql2
            mysql2_text racket].to_h { |kind| [kind, :none] },
          default_models: %w[nagle_flushed nagle_riding nodelay_flushed nodelay_riding one_flight_flushed one_flight
            mysql2 mysql2_text racket],
          peers: %w[mysql2 mysql2_text racket]

        per = ->(key, scale = 1) { ->(m) { m[key] && m[key] * scale / m["operations"] } }
        WALL = Metric.new(key: :wall, title: "Wall ms per query", better: :lower, value: per.call("wall", 1e3))
        COST = Metric.new(key: :cost, title: "CPU µs per query", better: :lower, value: per.call("cpu", 1e6))
        SEGMENTS = Metric.new(key: :segments, title: "Segments with data that the client sends, per query (TCP_INFO)",
          better: :lower, value: per.call("segments"))
        CALLS = Metric.new(key: :calls, title: "System calls that send, wait and receive, per query", better: :lower,
          value: per.call("system_calls"))
        private_constant :WALL, :COST, :SEGMENTS, :CALLS

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--scale FACTOR", Float, "times the usual number of statements (1)") do |scale|
            @scale = above_zero("--scale", scale)
          end
        end

        # @see Bench#options
        def options = {"scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= [Case.new(name: "new SQL, prepared, executed, closed", params: {"scale" => @scale || 1})]
        end

        # @see Bench#open
        def open(affinity, &) = with_server(affinity, :mariadb, &)

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge("url" => @server.url)

        # @see Bench#reference_for
        def reference_for(_, present) = present.include?("mysql2") ? "mysql2" : present.first

        # @see Bench#title
        def title = "A statement's close behind Nagle's algorithm: new SQL to MariaDB on the loopback"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self)
          notes = ["flushed: the close is sent at once, as Racket's client did before 2010; riding: " \
            "it goes ahead of the next statement",
            "nagle, nodelay: prepare and execution in a flight each; one_flight: together (MariaDB), without Nagle, " \
            "as Heddle::DB does it",
            "mysql2: prepare, execute, close; mysql2_text: no parameters, values pasted into the SQL; " \
            "racket: its db library",
            "system calls: our stream counts its own; those of mysql2 and of Racket are counted by strace, " \
            "in a run beside the one that is measured"]
          [matrix.values(WALL).tap { |table| table.notes.concat(notes) }, matrix.ratios(WALL), matrix.values(COST),
            matrix.values(SEGMENTS), matrix.values(CALLS), matrix.troubles].compact
        end
      end
    end
  end
end
