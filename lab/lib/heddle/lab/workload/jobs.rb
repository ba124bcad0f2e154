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
        # Seconds between two questions to a process.
        INTERVAL = 0.01
        private_constant :INTERVAL

        # What the jobs know of the workload.
        class << self
          # @return [Integer] jobs that have ended in this process; those that wait together which have begun
          attr_accessor :ended, :began
          # @return [Float] seconds of the monotonic clock, when the last of them did
          attr_accessor :last
          # @return [Float] seconds for which a job waits
          attr_accessor :wait
          # @return [URI] what a job asks for
          attr_accessor :uri
          # @return [ConnectionPool] of PG::Connection
          attr_accessor :database

          # Called by a job that is to wait together with others, as it begins.
          def began! = @lock.synchronize { @began += 1 }

          # Called by each job at its end.
          def ended!
            @lock.synchronize do
              @ended += 1
              @last = Clock.now
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
          Jobs.ended = Jobs.began = 0
          Jobs.wait = @params["wait"]
          count = self.count
          fill(count)
          members = Array.new(@params["processes"]) { Member.new { |questions, out| work(questions, out) } }
          members.each(&:look)
          before = warm_up(members)
          return meter.measure { hold(members, count, before) } if @params["job"] == "together"

          meter.measure do
            began, cpu = begin_work(members, count)
            await(members, before + count)
            {"operations" => count, "wall" => members.map(&:last).max - began, "jobs_cpu" => members.sum(&:cpu) - cpu,
             "jobs_rss_kib" => members.sum(&:rss), "growth_kib" => members.sum(&:growth)}
          end
        ensure
          members&.each(&:stop)
        end

        private

        # Takes the memory while all jobs wait: heap and stacks, since a child of fork maps the code of libraries anew
        # as it runs it.
        def hold(members, count, ended)
          begin_work(members, count)
          sleep INTERVAL until members.each(&:look).sum(&:began) >= count
          raise "some jobs ended before the last one began" if members.sum(&:ended) > ended

          {"operations" => count, "held_kib" => members.sum(&:now), "idle_kib" => members.sum(&:idle)}
        end

        # What the processes do before they are measured.
        # @return [Integer] how many jobs have ended
        def warm_up(_members) = 0

        # @return [Array] seconds of the monotonic clock when the jobs could begin, and of CPU time before
        def begin_work(members, _count)
          began = Clock.now
          members.each(&:start)
          [began, 0]
        end

        def await(members, count)
          loop do
            members.each(&:look)
            break if members.sum(&:ended) >= count

            sleep INTERVAL
          end
        end

        # How many of the jobs the model runs: few threads would take minutes for all that wait.
        def count
          return @argument * @params["processes"] if @params["job"] == "together"

          count = @params["count"]
          return count unless @kind.end_with?("threads") && Jobs.wait > 0

          [count, (@argument * @params["seconds"] / Jobs.wait).ceil].min
        end

        # The work of one process: starts to run jobs when it is told to, and answers when its last job so far ended,
        # how many have ended, its CPU time and memory. Several processes have all cores; one shares none with the
        # servers.
        #
        # Its answers are in the order of {Member#look}.
        def work(questions, out)
          if @params["processes"] > 1
            system("taskset", "-acp", "0-#{Etc.nprocessors - 1}", Process.pid.to_s, out: File::NULL, err: File::NULL)
          end
          start = embed
          GC.start
          before = %w[VmRSS RssAnon].map { |field| Workload.memory(field) }
          began = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
          while (question = questions.gets)
            next start.call if question == "start\n"

            cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - began
            out.puts [Jobs.last || 0, Jobs.ended, cpu, Workload.memory("VmHWM"), *before, Jobs.began,
              Workload.memory("RssAnon")].join(" ")
          end
        end

        # A child process that runs jobs.
        class Member
          # @return [Float] seconds of the monotonic clock: the end of its last job; and of CPU time
          attr_reader :last, :cpu
          # @return [Integer] jobs that have ended, and begun
          attr_reader :ended, :began
          # @return [Integer] KiB of memory at the most; and of anonymous memory, as the idle program and now
          attr_reader :rss, :idle, :now

          def initialize
            @answers, out = IO.pipe
            questions, @questions = IO.pipe
            @ended = 0
            @pid = fork do
              [@answers, @questions].each(&:close)
              out.sync = true
              yield(questions, out)
            end
            [questions, out].each(&:close)
          end

          def start = @questions.puts("start")

          # Asks it, and waits for the answer.
          def look
            @questions.puts("look")
            line = @answers.gets or raise "a process that runs jobs has ended"
            @last, @ended, @cpu, @rss, @before, @idle, @began, @now =
              line.split.zip(%i[to_f to_i to_f to_i to_i to_i to_i to_i]).map { |text, number| text.send(number) }
          end

          # @return [Integer] KiB of memory at the most above that of the idle program
          def growth = @rss - @before

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
