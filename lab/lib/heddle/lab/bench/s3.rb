# frozen_string_literal: true

module Heddle
  module Lab
    class Bench
      # Objects from S3 by unmodified aws-sdk-s3, all at once, from a distant server: NeverBlock's example of a pool of
      # a thousand fibers.
      class S3 < Bench
        bench "s3",
          about: "many objects at once from S3 by unmodified aws-sdk-s3, 200 ms away",
          kinds: {"pool" => :required, "threads" => :required, "async" => :none},
          default_models: %w[pool:1000 pool:1000@epoll threads:1000 async],
          peers: %w[async]

        WALL = Metric.new(key: :wall, title: "Seconds", better: :lower, value: ->(m) { m["wall"] })
        CPU = Metric.new(key: :cpu, title: "Own CPU, seconds", better: :lower, value: ->(m) { m["cpu"] })
        SERVER_CPU = Metric.new(key: :server_cpu, title: "CPU of the S3 server, seconds", better: :lower,
          value: ->(m) { m["server_cpu"] })
        SHARE = Metric.new(key: :share, title: "Seconds, as a share of two delays and the own CPU", better: :lower,
          value: ->(m) { m["wall"] / (2 * m["delay"] + m["cpu"]) })
        private_constant :WALL, :CPU, :SERVER_CPU, :SHARE

        def initialize
          super
          @requests = 1000
          @delay = 200
        end

        # @see Bench#define_options
        def define_options(parser)
          parser.on("--requests N", Integer, "objects (#{@requests})") do |count|
            @requests = at_least(1, "--requests", count)
          end
          parser.on("--delay MS", Integer, "milliseconds that the server is away (#{@delay})") do |delay|
            @delay = at_least(0, "--delay", delay)
          end
        end

        # @see Bench#options
        def options = {"requests" => @requests, "delay" => @delay}

        # @see Bench#cases
        def cases
          @cases ||= [Case.new(name: "#{@requests} objects, #{@delay} ms away",
            params: {"requests" => @requests, "delay" => @delay / 1000.0})]
        end

        # @see Bench#open
        def open(affinity)
          @server = server = Servers.s3
          system("taskset", "-acp", affinity.server.to_s, server.pid.to_s, out: File::NULL) if affinity.pinned?
          ShapingProxy.start("#{server.host}:#{server.port}", delay: @delay / 1000.0, core: affinity.server) do |proxy|
            @address = {"direct" => server.port, "port" => proxy.port, "bucket" => server.bucket,
                        "access_key" => server.access_key, "secret_key" => server.secret_key}
            yield
          end
        rescue Servers::Unavailable, Servers::StartFailed => error
          raise Error, error.message
        end

        # @see Bench#params
        def params(bench_case) = bench_case.params.merge(@address)

        # Adds the CPU time of the S3 server: s3rver is in JavaScript, and has one thread.
        # @see Bench#around
        def around(cell)
          before = server_seconds
          yield.tap { |answer| answer["measures"]&.store("server_cpu", server_seconds - before) }
        end

        # @see Bench#title
        def title = "#{@requests} objects at once by unmodified aws-sdk-s3, #{@delay} ms away"

        # @see Bench#tables
        def tables(summary)
          matrix = Report::Matrix.new(summary, self, models_down: true)
          share = matrix.values(SHARE).tap do |table|
            table.notes << "the aim is 1 or less: a delay to connect, which the proxy does not hold back, " \
              "and one to ask, and nothing else but work"
          end
          [matrix.values(WALL), matrix.values(CPU), matrix.values(SERVER_CPU), share,
            matrix.ratios(WALL), matrix.troubles].compact
        end

        private

        # User and system time of the S3 server until now, which the kernel counts in hundredths of a second.
        def server_seconds
          File.read("/proc/#{@server.pid}/stat").rpartition(")").last.split.values_at(11, 12).sum(&:to_i) / 100.0
        end
      end
    end
  end
end
