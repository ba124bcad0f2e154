# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Sidekiq's jobs on its own threads, and on Heddle's fibers.
      class Jobs < Bench
        bench "jobs",
          about: "Sidekiq's jobs on threads and on fibers: waiting ones, empty ones, a request and a query",
          kinds: {"threads" => :required, "fibers" => :required},
          default_models: %w[threads:10 threads:25 threads:100 fibers:100 fibers:500],
          default_rounds: 3

        # Threads do as many waiting jobs as they can in about that time; 10 of them would take 100 s for all.
        SECONDS = 10
        # How long a job of each kind waits, in seconds.
        WAITS = {"waiting" => 0.1, "empty" => 0, "mixed" => 0.055}.freeze
        CASES = {
          "jobs that wait 100 ms" => {"job" => "waiting", "count" => 10_000},
          "empty jobs" => {"job" => "empty", "count" => 20_000},
          "jobs with a query of 5 ms and an HTTP request of 50 ms" => {"job" => "mixed", "count" => 5_000}
        }.freeze
        RATE = Metric.new(key: :rate, title: "Jobs a second", better: :higher,
          value: ->(m) { m["operations"] / m["wall"] if m["wall"].positive? })
        WALL = Metric.new(key: :wall, title: "Seconds", better: :lower, value: ->(m) { m["wall"] })
        CPU = Metric.new(key: :cpu, title: "CPU µs a job", better: :lower,
          value: ->(m) { m["jobs_cpu"] * 1e6 / m["operations"] if m["operations"].positive? })
        MEMORY = Metric.new(key: :memory, title: "Memory at the most, MiB", better: :lower,
          value: ->(m) { m["jobs_rss_kib"] / 1024.0 })
        GROWTH = Metric.new(key: :growth, title: "Memory at the most above that of the idle program, MiB",
          better: :lower, value: ->(m) { m["growth_kib"] / 1024.0 })
        private_constant :SECONDS, :WAITS, :CASES, :RATE, :WALL, :CPU, :MEMORY, :GROWTH

        def initialize
          super
          @processes = 1
        end

        # @see Bench#define_options
        def define_options(parser)
          names = CASES.values.map { |params| params["job"] }
          parser.on("--jobs NAMES", Array, "which to run (#{names.join(",")})") do |asked|
            @jobs = known("job", asked, names)
          end
          parser.on("--processes N", Integer, "processes that share the jobs (#{@processes})") do |count|
            @processes = at_least(1, "--processes", count)
          end
          parser.on("--scale FACTOR", Float, "times the usual number of jobs (1)") do |scale|
            @scale = above_zero("--scale", scale)
          end
        end

        # @see Bench#options
        def options = {"jobs" => @jobs, "processes" => @processes, "scale" => @scale}.compact

        # @see Bench#cases
        def cases
          @cases ||= CASES.filter_map do |name, params|
            next unless @jobs.nil? || @jobs.include?(params["job"])

            count = (params["count"] * (@scale || 1)).ceil
            Case.new(name: "#{count} #{name}", params: params.merge("count" => count, "processes" => @processes,
              "seconds" => SECONDS, "wait" => WAITS.fetch(params["job"])))
          end
        end

        # @see Bench#pinned?
        def pinned? = @processes == 1

        # @see Bench#open
        def open(affinity)
          @redis = Servers.redis
          system("taskset", "-acp", affinity.server.to_s, @redis.pid.to_s, out: File::NULL) if affinity.pinned?
          return yield unless cases.any? { |bench_case| bench_case.params["job"] == "mixed" }

          @database = Servers.postgresql
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
        def reference_for(_model, present) = present.grep(/\Athreads/).first || present.first

        # @see Bench#title
        def title = "Sidekiq's jobs on threads and on Heddle's fibers#{" in #{@processes} processes" if @processes > 1}"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          notes = ["of jobs that wait, threads run as many as they can in about #{SECONDS} s, at most the number named"]
          [matrix.values(RATE).tap { |table| table.notes.concat(notes) }, matrix.ratios(RATE), matrix.values(WALL),
            matrix.values(CPU), matrix.values(MEMORY), matrix.values(GROWTH), matrix.troubles].compact
        end
      end
    end
  end
end
