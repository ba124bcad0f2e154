# frozen_string_literal: true

require_relative "seed_table"

module Heddle
  module Lab
    class Bench
      # The table of 2009: many requests by unmodified Net::HTTP, all at once, to a server that answers late.
      class Delay < Bench
        # Clients of other languages, measured only when asked for.
        LANGUAGES = %w[go go-kept aiohttp aiohttp-kept undici undici-kept].freeze
        private_constant :LANGUAGES

        bench "delay",
          about: "many requests at once by unmodified Net::HTTP to a server that answers late",
          kinds: {"blocking" => :none, "threads" => :optional, "heddle" => :none,
                  "heddle-net_http" => :none, "heddle-kept" => :none, "heddle-raw" => :none, "pool" => :required,
                  "processes" => :required,
                  "async" => :none, "async-raw" => :none, "heddle_async" => :none, "carbon_fiber" => :none,
                  "uringmachine" => :none, "wrk" => :none, **LANGUAGES.to_h { |name| [name, :none] }},
          default_models: %w[blocking threads threads:100 heddle heddle-net_http heddle-kept heddle-raw pool:1000
            async async-raw carbon_fiber uringmachine wrk],
          peers: %w[async async-raw carbon_fiber uringmachine wrk] + LANGUAGES

        # The most seconds that a model without concurrency may take for a cell; longer times are extrapolated.
        PATIENCE = 2.0
        WRK_SECONDS = 2
        private_constant :PATIENCE, :WRK_SECONDS

        def initialize
          super
          @requests = 1000
          @delays = SeedTable::DELAYS
          @hosts = ["127.0.0.1"]
        end

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--requests N", Integer, "requests at once (#{@requests})") do |count|
            @requests = at_least(1, "--requests", count)
          end
          parser.on("--delays MS,MS", Array, "milliseconds the server waits (#{@delays.join(",")})") do |delays|
            wrong = delays.grep_v(/\A\d{1,7}\z/).first
            raise UsageError, "--delays takes milliseconds, not #{wrong.inspect}" if wrong

            @delays = delays.map(&:to_i).uniq
          end
          parser.on("--processes N,N", Array, "measure Heddle.map over N processes, " \
            "with nothing pinned to a core;",
            "without other models unless --models names them") do |counts|
            wrong = counts.grep_v(/\A[1-9]\d{0,3}\z/).first
            raise UsageError, "--processes takes numbers from 1, not #{wrong.inspect}" if wrong

            @processes = counts.map(&:to_i).uniq # the others are compared with the first
          end
          parser.on("--host HOST,HOST", Array, "names or addresses to connect to (#{@hosts.join(",")})") do |hosts|
            @hosts = hosts.uniq
          end
          parser.on("--port PORT", Integer, "a server that runs already, see heddle serve (none: start one)") do |port|
            @port = port
          end
        end

        # @see Bench#options
        def options
          {"requests" => @requests, "delays" => @delays, "host" => @hosts.join(","), "port" => @port,
           "processes" => @processes}.compact
        end

        # @see Bench#models
        def models
          @model_names = [*@model_names, *@processes.map { |count| "processes:#{count}" }] if @processes && !@models
          super
        end

        # Several processes share all cores with the server.
        # @see Bench#pinned?
        def pinned? = @processes.nil?

        # @see Bench#cases
        def cases
          @cases ||= @delays.product(@hosts).map do |delay, host|
            sample = delay.zero? ? @requests : (PATIENCE * 1000 / delay).ceil.clamp(1, @requests)
            name = one_host? ? "#{delay} ms" : "#{delay} ms, #{host}"
            Case.new(name: name, params: {"delay" => delay, "host" => host, "requests" => @requests, "sample" => sample,
                                          "wrk_seconds" => WRK_SECONDS})
          end
        end

        # @see Bench#open
        def open(affinity)
          return yield if @port

          LoadServer.start(core: affinity.server) do |server|
            @server = server
            yield
          end
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge("port" => @port || @server.port)
        end

        # Adds the CPU time of the server itself.
        # @see Bench#around
        def around(cell)
          return yield unless @server

          before = server_seconds
          answer = yield
          answer["measures"]&.store("server_cpu", server_seconds - before)
          answer
        end

        # @see Bench#title
        def title = "#{@requests} requests at once by unmodified Net::HTTP, a new connection each"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self)
          [
            matrix.values(Measuring::RATE).tap { |table| describe_floor(table, summary) },
            spread_over_processes(summary),
            advantage(summary),
            seed,
            matrix.ratios(Measuring::RATE),
            matrix.values(Measuring::CPU, spread: false),
            matrix.ratios(Measuring::CPU),
            matrix.values(Measuring::PEAK_RSS, spread: false),
            matrix.troubles
          ].compact
        end

        # @see Bench#graphs
        def graphs(summary)
          advantages = advantage_rows(summary)
          graphs = {"rate" => rate_chart(summary)}
          graphs["advantage"] = advantage_chart(advantages) unless advantages.empty?
          graphs
        end

        private

        # Several hosts make a case each, with which the figures of 2009 cannot be compared.
        def one_host? = @hosts.size == 1

        # Requests a second, if that many cores did only the work of the clients and the server.
        BOUND = lambda do |cores|
          Metric.new(key: :bound, title: "Requests a second that #{cores} cores have room for", better: :higher,
            value: ->(m) {
              cores * m["operations"] / (m["cpu"] + m["server_cpu"]) if m["server_cpu"] && m["operations"].positive?
            })
        end
        private_constant :BOUND

        # @return [Report::Table, nil] the gain of several processes, and the share of the machine's bound that they
        #   reach
        def spread_over_processes(summary)
          names = summary.models.grep(/\Aprocesses:/)
          return if names.empty?

          rows = names.flat_map { |model| process_rows(summary, model, names.first) }
          Report::Table.new(title: "Several processes", columns: ["", *summary.cases], rows: rows, notes: [
            "bound: cores / (CPU of the clients + CPU of the server, a request), on the cores that there are for " \
            "clients and server. " \
            "Targets: two processes on two cores 0.85 of the bound, on three or more half as much again as one process"
          ])
        end

        def process_rows(summary, model, first)
          cores = [Affinity.allowed.size, model[/\d+/].to_i + 1].min
          bound = BOUND.call(cores)
          rates = summary.cases.map { |name| rate(summary, model, name) }
          bounds = summary.cases.map { |name| summary.spread(model, name, bound).median }
          rows = [["#{model}: bound on #{cores} cores, req/s", *bounds.map { |value| Report::Matrix.figure(value) }],
            ["#{model}: share of the bound",
              *rates.zip(bounds).map { |value, most| (value && most) ? format("%.2f", value / most) : "–" }]]
          rows.unshift(gain_row(summary, model, first)) unless model == first
          rows
        end

        def gain_row(summary, model, first)
          gains = summary.cases.map { |name| summary.compare(model, first, name, Measuring::RATE)&.ratio&.median }
          ["#{model} over #{first}", *gains.map { |gain| gain ? format("%+.0f %%", (gain - 1) * 100) : "–" }]
        end

        def server_seconds = @server.stats.values_at("cpu_user", "cpu_system").sum

        def describe_floor(table, summary)
          if summary.models.grep(/-raw/).any?
            table.notes << "raw is the floor, without a client: a TCPSocket that writes the request and reads to the " \
              "end, in the same fibers"
          end
          return unless summary.models.include?("wrk")

          table.notes << "wrk is the ceiling, in C: " \
            "a closed loop of #{@requests} connections for #{WRK_SECONDS} s, a new connection per request"
        end

        def rate(summary, model, name) = summary.spread(model, name, Measuring::RATE).median

        # @return [Array<Float, nil>] the best threaded client per case
        def best_threads(summary)
          threaded = summary.models.grep(/\Athreads/)
          summary.cases.map { |name| threaded.filter_map { |model| rate(summary, model, name) }.max }
        end

        # @return [Hash{String => Array<Float, nil>}] per cent over the best threads, by model, seed last
        def advantage_rows(summary)
          best = best_threads(summary)
          return {} if best.none?

          models = summary.models.grep(/\A(heddle|pool|processes|async|carbon_fiber|uringmachine)/).grep_v(/-raw/)
          rows = models.to_h do |model|
            advantages = summary.cases.zip(best).map do |name, threads|
              (own = rate(summary, model, name)) && threads && (own / threads - 1) * 100
            end
            [model, advantages]
          end
          seeds = one_host? ? @delays.map { |delay| SeedTable.at(SeedTable::ADVANTAGE, delay) } : []
          rows["NeverBlock, 2009"] = seeds if seeds.any?
          rows
        end

        def advantage(summary)
          rows = advantage_rows(summary).map do |name, values|
            [name, *values.map { |value| value ? format("%+.2f %%", value) : "–" }]
          end
          return if rows.empty?

          Report::Table.new(title: "Advantage over the best threaded client",
            columns: ["", *summary.cases], rows: rows, notes: [])
        end

        def seed
          return unless one_host? && (@delays & SeedTable::DELAYS).any?

          rows = SeedTable::RATES.map do |name, figures|
            [name, *@delays.map { |delay| (SeedTable.at(figures, delay) || "–").to_s }]
          end
          Report::Table.new(title: "The same in 2009, requests a second",
            columns: ["", *@delays.map { |delay| "#{delay} ms" }], rows: rows,
            notes: ["“Ruby Networking on Steroids”, a notebook with two cores; 500 ms extrapolated for blocking"])
        end

        def rate_chart(summary)
          series = (summary.models - ["wrk"]).map do |model|
            spreads = summary.cases.map { |name| summary.spread(model, name, Measuring::RATE) }
            Report::BarChart::Series.new(name: model, values: spreads.map(&:median), lows: spreads.map(&:low),
              highs: spreads.map(&:high))
          end
          Report::BarChart.new(title: "Requests a second by server delay",
            unit: "requests a second, median; whiskers: least to most. Clusters: the server's delay",
            clusters: summary.cases, series: series)
        end

        def advantage_chart(rows)
          series = rows.map { |name, values| Report::BarChart::Series.new(name: name, values: values) }
          Report::BarChart.new(title: "Advantage over the best threaded client",
            unit: "per cent. Clusters: the server's delay", clusters: cases.map(&:name), series: series)
        end
      end
    end
  end
end
