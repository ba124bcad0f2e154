# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Jobs of Sidekiq and of Solid Queue on their own threads and fibers, and on Heddle's fibers.
      class Jobs < Bench
        bench "jobs",
          about: "Sidekiq's and Solid Queue's jobs on threads and on fibers: waiting, empty, a request and a query",
          kinds: {"threads" => :required, "fibers" => :required, "solid_threads" => :required,
                  "solid_fibers" => :required, "solid_heddle" => :required},
          default_models: %w[threads:10 threads:25 threads:100 fibers:100 fibers:500 solid_threads:100
            solid_fibers:100 solid_heddle:100],
          peers: %w[solid_threads solid_fibers solid_heddle],
          default_rounds: 3

        # Threads do as many waiting jobs as they can in about that time; 10 of them would take 100 s for all.
        SECONDS = 10
        # How long a job of each kind waits, in seconds.
        WAITS = {"waiting" => 0.1, "empty" => 0, "mixed" => 0.055, "together" => 3}.freeze
        # As many jobs as the model runs at once.
        TOGETHER = "jobs that all wait"
        SOLID_TOGETHER = "jobs of Solid Queue that all wait"
        CASES = {
          "jobs that wait 100 ms" => {"job" => "waiting", "count" => 10_000},
          "empty jobs" => {"job" => "empty", "count" => 20_000},
          "jobs with a query of 5 ms and an HTTP request of 50 ms" => {"job" => "mixed", "count" => 5_000},
          "jobs that wait 100 ms, in two processes" => {"job" => "waiting", "count" => 20_000, "processes" => 2},
          "empty jobs in two processes" => {"job" => "empty", "count" => 40_000, "processes" => 2},
          "jobs of Solid Queue that wait 100 ms" => {"job" => "waiting", "count" => 1_000, "engine" => "solid"},
          "empty jobs of Solid Queue" => {"job" => "empty", "count" => 1_000, "engine" => "solid"},
          TOGETHER => {"job" => "together"},
          SOLID_TOGETHER => {"job" => "together", "engine" => "solid"}
        }.freeze
        # Models for which the memory of jobs that wait at once is measured: the fewest.
        TOGETHER_LEAST = 100
        # Those which two processes run, too.
        IN_TWO = %w[threads:25 fibers:100 fibers:500].freeze
        RATE = Metric.new(key: :rate, title: "Jobs a second", better: :higher,
          value: ->(m) { m["operations"] / m["wall"] if m["wall"].positive? })
        WALL = Metric.new(key: :wall, title: "Seconds", better: :lower, value: ->(m) { m["wall"] })
        CPU = Metric.new(key: :cpu, title: "CPU µs a job", better: :lower,
          value: ->(m) { m["jobs_cpu"] * 1e6 / m["operations"] if m["jobs_cpu"] && m["operations"].positive? })
        MEMORY = Metric.new(key: :memory, title: "Memory at the most, MiB", better: :lower,
          value: ->(m) { m["jobs_rss_kib"]&./(1024.0) })
        GROWTH = Metric.new(key: :growth, title: "Memory at the most above that of the idle program, MiB",
          better: :lower, value: ->(m) { m["growth_kib"]&./(1024.0) })
        # For jobs that all wait: the idle program, before it starts its threads or fibers; and while all jobs wait.
        HELD = [
          Metric.new(key: :idle, title: "idle, MiB", better: :lower, value: ->(m) { m["idle_kib"]&./(1024.0) }),
          Metric.new(key: :held, title: "all jobs wait, MiB", better: :lower,
            value: ->(m) { m["held_kib"]&./(1024.0) }),
          Metric.new(key: :above, title: "above idle, MiB", better: :lower, value: ->(m) { above(m)&./(1024.0) }),
          Metric.new(key: :above_each, title: "above idle, KiB a job", better: :lower,
            value: ->(m) { above(m)&.fdiv(m["operations"]) })
        ].freeze
        private_constant :SECONDS, :WAITS, :CASES, :IN_TWO, :RATE, :WALL, :CPU, :MEMORY, :GROWTH, :HELD,
          :TOGETHER, :SOLID_TOGETHER, :TOGETHER_LEAST

        # @return [Integer, nil] KiB that the jobs which wait take
        def self.above(measures) = measures["held_kib"]&.-(measures["idle_kib"])
        private_class_method :above

        # @see Bench#define_options
        def define_options(parser)
          names = WAITS.keys
          parser.on("--jobs NAMES", Array, "which to run (#{names.join(",")})") do |asked|
            @jobs = known("job", asked, names)
          end
          parser.on("--processes N", Integer, "processes that share the jobs (1, and 2 in some cases)") do |count|
            @processes = at_least(1, "--processes", count)
          end
          scale_option(parser, "jobs")
        end

        # @see Bench#options
        def options = {"jobs" => @jobs, "processes" => @processes, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.filter_map do |name, params|
            next unless @jobs.nil? || @jobs.include?(params["job"])
            next if @processes && params["processes"]

            bench_case = case_of(name, params)
            bench_case if models.any? { |model| applies?(model, bench_case) }
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          params = bench_case.params
          return false unless model.kind.start_with?("solid") == (params["engine"] == "solid")
          return model.argument >= TOGETHER_LEAST if params["job"] == "together"

          @processes || params["processes"] == 1 || IN_TWO.include?(model.name)
        end

        # @see Bench#pinned?
        def pinned? = (@processes || 1) == 1

        # @see Bench#open
        def open(affinity)
          @redis = Servers.redis
          system("taskset", "-acp", affinity.server.to_s, @redis.pid.to_s, out: File::NULL) if affinity.pinned?
          jobs = cases.map { |bench_case| bench_case.params.values_at("job", "engine") }.flatten
          @database = Servers.postgresql if jobs.intersect?(%w[mixed solid])
          return yield unless jobs.include?("mixed")

          LoadServer.start(core: affinity.server) do |server|
            @server = server
            yield
          end
        rescue Servers::Unavailable, Servers::StartFailed => error
          raise Error, error.message
        end

        # @see Bench#params
        def params(bench_case)
          bench_case.params.merge("redis" => @redis.url, "database" => @database&.url, "port" => @server&.port).compact
        end

        # @see Bench#reference_for
        def reference_for(model, present)
          engine = model.start_with?("solid") ? /\Asolid_threads/ : /\Athreads/
          present.grep(engine).first || present.first
        end

        # @see Bench#title
        def title
          processes = " in #{@processes} processes" if @processes && @processes > 1
          "Jobs of Sidekiq and of Solid Queue on threads and on fibers#{processes}"
        end

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, cases: summary.cases - [TOGETHER, SOLID_TOGETHER])
          notes = ["of jobs that wait, threads run as many as they can in about #{SECONDS} s, at most the number named",
            "threads: Sidekiq's own; fibers: Sidekiq with heddle/sidekiq",
            "solid_threads, solid_fibers: Solid Queue's own on PostgreSQL; solid_heddle: its fibers with heddle/async",
            "one process and the servers have a core each; two processes share all cores with the servers"]
          speed = [matrix.values(RATE).tap { |table| table.notes.concat(notes) }, matrix.ratios(RATE),
            *[WALL, CPU, MEMORY, GROWTH].map { |metric| matrix.values(metric) }]
          speed.clear if summary.cases.all? { |name| [TOGETHER, SOLID_TOGETHER].include?(name) }
          [*speed, loops(summary), held(summary), Report::Matrix.new(summary, self).troubles].compact
        end

        private

        def case_of(name, params)
          if params["count"]
            count = (params["count"] * (@scale || 1)).ceil
            name = "#{count} #{name}"
          end
          Case.new(name: name, params: {"processes" => @processes || 1}.merge(params,
            "count" => count, "seconds" => SECONDS, "wait" => WAITS.fetch(params["job"])))
        end

        # @return [Report::Table, nil] Solid Queue's fibers on Heddle's loop, compared with those on Async's
        def loops(summary)
          pairs = summary.models.filter_map do |model|
            async = model.sub(/\Asolid_heddle/, "solid_fibers")
            [model, async] if async != model && summary.models.include?(async)
          end
          rows = pairs.product(summary.cases).filter_map do |(model, async), name|
            ratios = [RATE, CPU, GROWTH].map { |metric| summary.compare(model, async, name, metric)&.ratio }
            ["#{model}, #{name}", *ratios.map { |ratio| interval(ratio) }] if ratios.all?
          end
          return if rows.empty?

          Report::Table.new(title: "Solid Queue's fibers on Heddle's loop, as a ratio to those on Async's own: " \
            "median [95 % interval]", columns: ["", *[RATE, CPU, GROWTH].map(&:title)], rows: rows, notes: [])
        end

        def interval(ratio)
          "#{Report::Matrix.figure(ratio.median)} [#{Report::Matrix.figure(ratio.low)}–" \
            "#{Report::Matrix.figure(ratio.high)}]"
        end

        # @return [Report::Table, nil] what jobs cost that all wait
        def held(summary)
          rows = (summary.cases & [TOGETHER, SOLID_TOGETHER]).flat_map do |name|
            summary.models.filter_map { |model| held_row(summary, model, name) }
          end
          return if rows.empty?

          Report::Table.new(title: "Memory while all jobs wait that the model runs at once: medians", rows: rows,
            columns: ["", *HELD.map(&:title), "ratio to threads, above idle", "ratio to threads, above idle a job"],
            notes: ["resident anonymous memory: heap and stacks, not the code of libraries",
              "idle: the program before it starts its threads or fibers; threads: the same engine's, in the first row"])
        end

        def held_row(summary, model, name)
          medians = HELD.map { |metric| summary.spread(model, name, metric).median }
          return if medians.none?

          threads = reference_for(model, summary.models.select { |other| summary.spread(other, name, HELD[0]).median })
          ratios = HELD.last(2).map { |metric| summary.compare(model, threads, name, metric)&.ratio&.median }
          [model, *[*medians, *ratios].map { |number| Report::Matrix.figure(number) }]
        end
      end
    end
  end
end
