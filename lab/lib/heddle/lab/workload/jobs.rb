# frozen_string_literal: true

require "etc"
require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # Jobs of Sidekiq or Solid Queue, which runs embedded in a child of this process, or in each of several.
      class Jobs < Workload
        for_bench "jobs"

        BATCH = 1000
        CONNECTIONS = 20 # to the database
        # Seconds between two reports of a process.
        INTERVAL = 0.01
        private_constant :INTERVAL

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

          # Called by each job at its end.
          def ended!
            @lock.synchronize do
              @ended += 1
              @last = Process.clock_gettime(Process::CLOCK_MONOTONIC)
            end
          end
        end
        @lock = Thread::Mutex.new

        def initialize(**)
          super
          require "heddle/lab/workload/jobs/on_sidekiq"
          require "heddle/lab/workload/jobs/on_solid_queue"
          extend(@kind.start_with?("solid") ? OnSolidQueue : OnSidekiq)
        end

        # @see Workload#perform
        def perform(meter)
          Jobs.ended = 0
          Jobs.wait = @params["wait"]
          count = self.count
          fill(count)
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

        # How many of the jobs the model runs: few threads would take minutes for all that wait.
        def count
          count = @params["count"]
          return count unless @kind.end_with?("threads") && Jobs.wait > 0

          [count, (@argument * @params["seconds"] / Jobs.wait).ceil].min
        end

        # The work of one process: reports when its last job so far ended, how many have ended, its CPU time and memory.
        # Several processes have all cores; one shares none with the servers.
        def work(out, go)
          if @params["processes"] > 1
            system("taskset", "-acp", "0-#{Etc.nprocessors - 1}", Process.pid.to_s, out: File::NULL, err: File::NULL)
          end
          start = embed
          GC.start
          before = Workload.memory("VmRSS")
          out.puts "ready"
          go.gets
          began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          start.call
          loop do
            sleep INTERVAL
            cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began
            out.puts [Jobs.last || 0, Jobs.ended, cpu, Workload.memory("VmHWM"), before].join(" ")
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
