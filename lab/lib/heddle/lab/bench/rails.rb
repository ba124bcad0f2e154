# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Pages of a Rails application on Puma's threads, on Puma with plugin :heddle, and on falcon.
      class Rails < Bench
        bench "rails",
          about: "a Rails application on Puma's threads, on Puma with plugin :heddle, and on falcon",
          kinds: {"threads" => :required, "fibers" => :none, "falcon" => :none},
          default_models: %w[threads:5 threads:25 fibers falcon],
          peers: %w[falcon],
          default_rounds: 3

        # Threads answer as many waiting pages as they can in about that time.
        SECONDS = 10
        # Milliseconds that each of the three calls of a waiting page takes, and for which a computing one computes.
        DELAY = 50
        COMPUTING = 20
        CASES = {
          "waiting: three HTTP calls of #{DELAY} ms and two queries, 100 clients" =>
            {"page" => "waiting", "clients" => 100, "count" => 3000},
          "empty, 16 clients" => {"page" => "empty", "clients" => 16, "count" => 5000},
          "waiting, 20 clients, beside one that computes #{COMPUTING} ms each time" =>
            {"page" => "waiting", "clients" => 20, "count" => 1000, "beside" => "computing"}
        }.freeze
        PAGES = %w[waiting empty computing].freeze
        MEDIAN = Metric.new(key: :median, title: "Milliseconds to an answer, median", better: :lower,
          value: ->(m) { m["median"] * 1000 })
        P99 = Metric.new(key: :p99, title: "Milliseconds to an answer, 99 % of the answers are faster", better: :lower,
          value: ->(m) { m["p99"] * 1000 })
        private_constant :SECONDS, :DELAY, :COMPUTING, :CASES, :PAGES, :MEDIAN, :P99

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--pages NAMES", Array, "which to ask for (#{PAGES.join(",")}: waiting beside it)") do |names|
            @pages = known("page", names, PAGES)
          end
          scale_option(parser, "requests")
        end

        # @see Bench#options
        def options = {"pages" => @pages, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.filter_map do |name, params|
            next unless @pages.nil? || @pages.include?(params["beside"] || params["page"])

            count = [(params["count"] * (@scale || 1)).ceil, params["clients"]].max
            Case.new(name: name, params: params.merge("count" => count, "seconds" => SECONDS, "delay" => DELAY,
              "computing" => COMPUTING))
          end
        end

        # @see Bench#open
        def open(affinity)
          @server_core = affinity.server
          with_server(affinity, :postgresql) do
            LoadServer.start(core: @server_core) do |pages|
              @load_server = pages
              yield
            end
          end
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge({"database" => @server.url, "port" => @load_server.port,
                                   "server_core" => @server_core}.compact)
        end

        # @see Bench#reference_for
        def reference_for(_model, present) = present.grep(/\Athreads/).first || present.first

        # @see Bench#title
        def title = "A Rails application on Puma's threads, on Puma with plugin :heddle, and on falcon"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self)
          notes = ["threads: Puma's own; fibers: Puma with plugin :heddle and its defaults; falcon: on Async",
            "one process, with a core of its own; PostgreSQL, the server of the HTTP calls and the clients have one",
            "each client keeps its connection, and asks again at once; 25 connections to the database"]
          rate = matrix.values(Measuring::RATE).tap { |table| table.notes.concat(notes) }
          [rate, matrix.ratios(Measuring::RATE), matrix.values(MEDIAN), matrix.values(P99),
            matrix.values(Measuring::CPU), matrix.ratios(Measuring::CPU), matrix.values(Measuring::PEAK_RSS),
            matrix.troubles].compact
        end
      end
    end
  end
end
