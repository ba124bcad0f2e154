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
        WAITS = {"waiting" => 0.1, "empty" => 0, "mixed" => 0.055}.freeze
        CASES = {
          "jobs that wait 100 ms" => {"job" => "waiting", "count" => 10_000},
          "empty jobs" => {"job" => "empty", "count" => 20_000},
          "jobs with a query of 5 ms and an HTTP request of 50 ms" => {"job" => "mixed", "count" => 5_000},
          "jobs that wait 100 ms, in two processes" => {"job" => "waiting", "count" => 20_000, "processes" => 2},
          "empty jobs in two processes" => {"job" => "empty", "count" => 40_000, "processes" => 2},
          "jobs of Solid Queue that wait 100 ms" => {"job" => "waiting", "count" => 1_000, "engine" => "solid"},
          "empty jobs of Solid Queue" => {"job" => "empty", "count" => 1_000, "engine" => "solid"}
        }.freeze
        # Those which two processes run, too.
        IN_TWO = %w[threads:25 fibers:100 fibers:500].freeze
        RATE = Metric.new(key: :rate, title: "Jobs a second", better: :higher,
          value: ->(m) { m["operations"] / m["wall"] if m["wall"].positive? })
        WALL = Metric.new(key: :wall, title: "Seconds", better: :lower, value: ->(m) { m["wall"] })
        CPU = Metric.new(key: :cpu, title: "CPU µs a job", better: :lower,
          value: ->(m) { m["jobs_cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
        MEMORY = Metric.new(key: :memory, title: "Memory at the most, MiB", better: :lower,
          value: ->(m) { m["jobs_rss_kib"] / 1024.0 })
        GROWTH = Metric.new(key: :growth, title: "Memory at the most above that of the idle program, MiB",
          better: :lower, value: ->(m) { m["growth_kib"] / 1024.0 })
        private_constant :SECONDS, :WAITS, :CASES, :IN_TWO, :RATE, :WALL, :CPU, :MEMORY, :GROWTH

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

            count = (params["count"] * (@scale || 1)).ceil
            bench_case = Case.new(name: "#{count} #{name}", params: {"processes" => @processes || 1}.merge(params,
              "count" => count, "seconds" => SECONDS, "wait" => WAITS.fetch(params["job"])))
            bench_case if models.any? { |model| applies?(model, bench_case) }
          end
        end

        # @see Bench#applies?
        def applies?(model, bench_case)
          return false unless model.kind.start_with?("solid") == (bench_case.params["engine"] == "solid")

          @processes || bench_case.params["processes"] == 1 || IN_TWO.include?(model.name)
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
          matrix = Report::Matrix.new(summary, self, models_down: true)
          notes = ["of jobs that wait, threads run as many as they can in about #{SECONDS} s, at most the number named",
            "threads: Sidekiq's own; fibers: Sidekiq with heddle/sidekiq",
            "solid_threads, solid_fibers: Solid Queue's own on PostgreSQL; solid_heddle: its fibers with heddle/async",
            "one process and the servers have a core each; two processes share all cores with the servers"]
          [matrix.values(RATE).tap { |table| table.notes.concat(notes) }, matrix.ratios(RATE), matrix.values(WALL),
            matrix.values(CPU), matrix.values(MEMORY), matrix.values(GROWTH), matrix.troubles].compact
        end
      end
    end
  end
end
