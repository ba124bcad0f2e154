# frozen_string_literal: true

require "net/http"
require "heddle/lab/workload"
require "heddle/lab/workload/foreign_program"

module Heddle
  module Lab
    class Workload
      # Many requests at once by unmodified Net::HTTP, each on a connection of its own: a new one, or a kept one.
      class Delay < Workload
        for_bench "delay"

        WARM_UP = 20
        # Milliseconds that answers take where all requests must be open at once before the measurement.
        TOGETHER = 500
        # Connections that are kept: all.
        MANY = 100_000
        BODY = "done"
        private_constant :WARM_UP, :TOGETHER, :MANY, :BODY

        # @see Workload#prepare
        def prepare
          @host, @port, @requests, @delay = @params.values_at("host", "port", "requests", "delay")
          @sample = @params["sample"]
          @failures = []
          @failures_lock = Thread::Mutex.new
          @program = ForeignProgram.of(@kind)
          return @program.versions if @program

          case @kind
          when "heddle", "heddle-raw", "pool", "processes" then load_heddle
          when "heddle-net_http" then load_heddle + load_net_http
          when "heddle-kept" then load_heddle + load_net_http.tap { keep_alive }
          when "async", "async-raw" then load_async
          when "heddle_async" then load_heddle_async
          when "carbon_fiber" then load_carbon_fiber
          when "uringmachine" then load_uringmachine
          when "wrk" then [wrk_version]
          else ["net-http #{Net::HTTP::VERSION}"]
          end
        end

        # @see Workload#perform
        def perform(meter)
          return meter.measure { wrk } if @kind == "wrk"
          return meter.measure { foreign } if @program

          kept? ? send(way, @requests, "/#{TOGETHER}") : send(way, WARM_UP, "/0")
          @failures.clear
          requests = (@kind == "blocking") ? @sample : @requests
          meter.measure do
            more = send(way, requests, "/#{@delay}")
            if accelerated? && Heddle::NetHTTP.stats.fetch(:fast) < requests
              failed("nothing went the fast way: #{Heddle::NetHTTP.stats}")
            end
            if kept? && Heddle::NetHTTP.stats.fetch(:reused) < requests
              failed("connections were not used again: #{Heddle::NetHTTP.stats}")
            end
            {"operations" => requests - @failures.size, "errors" => @failures.size, "first_error" => @failures.first,
             "extrapolated" => (requests < @requests), **((@kind == "processes") ? more : {})}
          end
        end

        private

        def foreign
          base = "http://#{@host}:#{@port}"
          warm_up = {"#{base}/0" => ForeignProgram::WARM_UPS}
          warm_up = {"#{base}/#{TOGETHER}" => @requests, **warm_up} if kept?
          @program.request("#{base}/#{@delay}", @requests, at_once: @requests, kept: kept?, warm_up: warm_up)
        end

        # Whether Net::HTTP is also accelerated.
        def accelerated? = @kind.end_with?("-net_http") || kept?

        # Whether the connections of the requests before are used again.
        def kept? = @kind.end_with?("-kept")

        # Whether the model has no HTTP client, and measures only sockets and scheduler.
        def raw? = @kind.end_with?("-raw")

        def way = @kind.delete_suffix("-net_http").delete_suffix("-kept").delete_suffix("-raw")

        def keep_alive = Heddle::NetHTTP.keep_alive(idle: 600, per_host: MANY, total: MANY)

        # Async's API on Heddle's loop.
        def load_heddle_async
          async = load_gem("async")
          require "heddle/async"
          [async, *load_heddle]
        end

        def load_net_http
          require "heddle/net_http"
          ["net-http #{Net::HTTP::VERSION}, accelerated"]
        end

        def get(path)
          return get_raw(path) if raw?

          response = Net::HTTP.start(@host, @port) { |http| http.get(path) }
          return if response.body == BODY && response.code == "200"

          failed("wrong answer: #{response.code} #{response.body.inspect[0, 60]}")
        rescue SystemCallError, IOError, SocketError, Timeout::Error, Net::ProtocolError => error
          failed("#{error.class}: #{error.message}")
        end

        # Writes the request and reads to the end.
        def get_raw(path)
          socket = TCPSocket.new(@host, @port)
          socket.write("GET #{path} HTTP/1.1\r\nHost: #{@host}:#{@port}\r\nConnection: close\r\n\r\n")
          answer = socket.read
          unless answer.start_with?("HTTP/1.1 200 ") && answer.end_with?("\r\n\r\n#{BODY}")
            failed("wrong answer: #{answer[0, 60].inspect}")
          end
        rescue SystemCallError, IOError, SocketError => error
          failed("#{error.class}: #{error.message}")
        ensure
          socket&.close
        end

        def failed(what) = @failures_lock.synchronize { @failures << what }

        def blocking(requests, path)
          requests.times { get(path) }
        end

        def threads(requests, path)
          return thread_pool(requests, path) if @argument

          Array.new(requests) { Thread.new { get(path) } }.each(&:join)
        end

        def thread_pool(requests, path)
          queue = Thread::Queue.new
          requests.times { queue << path }
          queue.close
          workers = Array.new(@argument) do
            Thread.new do
              while (asked = queue.pop)
                get(asked)
              end
            end
          end
          workers.each(&:join)
        end

        def heddle(requests, path)
          Heddle.run { Array.new(requests) { Heddle.spawn { get(path) } }.each(&:value) }
        end

        def pool(requests, path)
          Heddle.run { Heddle::FiberPool.new(@argument).map(Array.new(requests, path)) { |asked| get(asked) } }
        end

        # The CPU time of the children is known when they have ended; their peak of memory is not available.
        def processes(requests, path)
          before = Process.times
          own = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          fibers = (requests / @argument.to_f).ceil
          failures = Heddle.map(Array.new(requests, path), fibers: fibers, processes: @argument) do |asked|
            get(asked)&.last
          end
          @failures = failures.compact
          return {} if @argument == 1

          own = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - own
          after = Process.times
          user, system = after.cutime - before.cutime, after.cstime - before.cstime
          {"cpu" => own + user + system, "user" => after.utime - before.utime + user,
           "system" => after.stime - before.stime + system, "peak_rss_kib" => nil}
        end

        def async(requests, path)
          Sync { |task| Array.new(requests) { task.async { get(path) } }.each(&:wait) }
        end
        alias_method :heddle_async, :async

        def carbon_fiber(requests, path)
          scheduled(CarbonFiber::Scheduler, requests, path)
        end

        def uringmachine(requests, path)
          scheduled(UM::FiberScheduler, requests, path)
        end

        # A thread runs its scheduler at its end.
        def scheduled(scheduler, requests, path)
          Thread.new do
            Fiber.set_scheduler(scheduler.new)
            requests.times { Fiber.schedule { get(path) } }
          end.join
        end

        def wrk_version
          output = IO.popen(["wrk", "--version"], err: [:child, :out], &:read)
          output[/^wrk \S+/] || "wrk"
        rescue Errno::ENOENT
          raise LoadError, "wrk is not installed (Debian: apt install wrk)"
        end

        # A closed loop for some seconds: each connection makes its next request when the last is answered. wrk does
        # not check bodies; every status other than 2xx counts as an error.
        def wrk
          before = Process.times
          report = IO.popen(["wrk", "--threads", "1", "--connections", @requests.to_s, "--duration",
            "#{@params["wrk_seconds"]}s",
            "--timeout", "30s", "--header", "Connection: close", "http://#{@host}:#{@port}/#{@delay}"], &:read)
          after = Process.times
          made, seconds = report.match(/(\d+) requests in ([\d.]+)s/)&.captures
          raise "wrk failed: #{report.lines.last}" unless made

          errors = report[/Non-2xx or 3xx responses: (\d+)/, 1].to_i +
            report[/Socket errors: (.*)/, 1].to_s.scan(/\d+/).sum(&:to_i)
          cpu = after.cutime + after.cstime - before.cutime - before.cstime
          {"operations" => made.to_i, "wall" => seconds.to_f, "cpu" => cpu, "user" => after.cutime - before.cutime,
           "system" => after.cstime - before.cstime, "errors" => errors, "peak_rss_kib" => nil}
        end
      end
    end
  end
end
