# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # Jobs of Sidekiq, which runs embedded in this process, or in each of several children of it.
      class Jobs < Workload
        for_bench "jobs"

        BATCH = 1000
        # Seconds between two reports of a process.
        INTERVAL = 0.01
        CONNECTIONS = 20 # to the database
        private_constant :BATCH, :INTERVAL, :CONNECTIONS

        # What the jobs know of the workload.
        class << self
          # @return [Integer] jobs that have ended in this process
          attr_accessor :ended
          # @return [Float] seconds of the monotonic clock, when the last of them did
          attr_accessor :last
          # @return [Float] seconds for which a job waits
          attr_accessor :wait
          # @return [URI] what a job asks for
          attr_accessor :uri
          # @return [ConnectionPool] of PG::Connection
          attr_accessor :database
        end

        # @see Workload#prepare
        def prepare
          versions = [load_gem("sidekiq"), *([load_gem("pg")] if @params["job"] == "mixed")]
          require "sidekiq/embedded"
          require "net/http"
          require "heddle/lab/workload/jobs/classes"
          return versions unless @kind == "fibers"

          versions += load_heddle
          require "heddle/sidekiq"
          versions
        end

        # @see Workload#perform
        def perform(meter)
          Jobs.ended = 0
          Jobs.wait = @params["wait"]
          configure
          count = fill
          members = Array.new(@params["processes"]) { Member.new { |out, go| work(out, go) } }
          members.each(&:ready)
          meter.measure do
            began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
            members.each(&:start)
            members.each(&:look) until members.sum(&:ended) >= count
            {"operations" => count, "wall" => members.map(&:last).max - began, "jobs_cpu" => members.sum(&:cpu),
             "jobs_rss_kib" => members.sum(&:rss), "growth_kib" => members.sum(&:growth)}
          end
        ensure
          members&.each(&:stop)
        end

        private

        def configure
          options = {url: @params["redis"]}
          ::Sidekiq.configure_client do |config|
            config.redis = options
            config.logger.level = ::Logger::WARN
          end
          Jobs.uri = URI("http://127.0.0.1:#{@params["port"]}/50")
        end

        def fill
          ::Sidekiq.redis { |redis| redis.call("FLUSHALL") }
          count = @params["count"]
          # Threads would take minutes.
          count = [count, (@argument * @params["seconds"] / Jobs.wait).ceil].min if @kind == "threads" && Jobs.wait > 0
          klass = Classes.const_get(@params["job"].capitalize)
          Array.new(count) { [] }.each_slice(BATCH) do |arguments|
            ::Sidekiq::Client.push_bulk("class" => klass, "args" => arguments)
          end
          count
        end

        # The work of one process: reports when its last job so far ended, how many have ended, its CPU time and memory.
        def work(out, go)
          size = (@kind == "threads") ? @argument : [CONNECTIONS, @argument].min
          Jobs.database = ::ConnectionPool.new(size: size, timeout: 60) { PG.connect(@params["database"]) }
          engine = embed
          GC.start
          before = Workload.memory("VmRSS")
          out.puts "ready"
          go.gets
          began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          engine.run
          loop do
            sleep INTERVAL
            cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began
            out.puts [Jobs.last || 0, Jobs.ended, cpu, Workload.memory("VmHWM"), before].join(" ")
          end
        end

        def embed
          ::Sidekiq.configure_embed do |config|
            config.redis = {url: @params["redis"]}
            config.logger.level = ::Logger::WARN
            (@kind == "fibers") ? config.heddle(fibers: @argument) : config.concurrency = @argument
          end
        end

        # A child process that runs jobs.
        class Member
          # @return [Float] seconds of the monotonic clock: the end of its last job; and of CPU time
          attr_reader :last, :cpu
          # @return [Integer] jobs that have ended; KiB of memory at the most, and above that of the idle program
          attr_reader :ended, :rss, :growth

          def initialize
            @report, out = IO.pipe
            go, @go = IO.pipe
            @ended = 0
            @pid = fork do
              [@report, @go].each(&:close)
              out.sync = true
              yield(out, go)
            end
            [out, go].each(&:close)
          end

          # Waits until it can begin.
          def ready = @report.gets

          def start = @go.puts

          # Reads its next report.
          def look
            line = @report.gets or raise "a process that runs jobs has ended"
            @last, @ended, @cpu, @rss, before = line.split.zip(%i[to_f to_i to_f to_i to_i]).map { |s, m| s.send(m) }
            @growth = @rss - before
          end

          def stop
            Process.kill(:KILL, @pid)
            Process.wait(@pid)
          end
        end
        private_constant :Member
      end
    end
  end
end
