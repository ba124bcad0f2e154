# frozen_string_literal: true

require_relative "description"
require_relative "snapshot"

module Heddle
  module Insight
    # What only Ruby code can tell of this process.
    class Reporter
      # Seconds for which a slice of a report may keep the GVL.
      SLICE = 0.001
      STEPS = 32 # tasks between two looks at the clock
      FRAMES = 40
      BYTES = 32 << 20
      POOLS = 500
      CHAIN = 20
      private_constant :SLICE, :STEPS, :FRAMES, :BYTES, :POOLS, :CHAIN

      class << self
        # @return [String] the line with which each answer of this process begins
        def head
          JSON.generate("heddle" => VERSION, "pid" => Process.pid, "parent" => Process.ppid, "ruby" => RUBY_VERSION,
            "program" => Description.clean($PROGRAM_NAME, 200), "namespace" => namespace) << "\n"
        end

        # For the native thread that answers. Lets other threads run after each slice.
        #
        # @param question [String] "ps", "ps backtraces" or "why NUMBER"
        # @return [String] lines of JSON, each with its end
        def answer(question)
          verb, argument = question.split
          new(Clock.now).answer(verb, argument)
        rescue => error
          JSON.generate("ruby" => nil, "reason" => Description.clean("#{error.class}: #{error.message}", 200)) << "\n"
        end

        # @param schedulers [Array<Array(Scheduler, Thread)>]
        # @return [Snapshot] of this process, made at once by the calling thread
        def snapshot(schedulers) = new.snapshot(schedulers)

        private

        # Without it a command would take a process of a container for one of its own with the same number.
        def namespace
          File.readlink("/proc/self/ns/pid")
        rescue SystemCallError
          ""
        end
      end

      # @param begun [Float, nil] the beginning of the first slice; nil for a report in one piece
      def initialize(begun = nil)
        @begun = begun
        @description = Description.new(queries)
      end

      # @return [String]
      def answer(verb, argument)
        traced = (verb == "why") ? chain(argument.to_i) : {}
        lines = details(traced, argument == "backtraces")
        lines << JSON.generate("ruby" => {"pools" => pools, "running" => running, "threads" => Thread.list.size}) << "\n"
      end

      # @return [Snapshot]
      def snapshot(schedulers)
        loops = schedulers.each_with_index.map { |(scheduler, thread), index| loop_row(scheduler, thread, index) }
        tasks = schedulers.each_with_index.flat_map do |(scheduler, _), index|
          scheduler.tasks.map { |task| task_row(task, index) }
        end
        Snapshot.new({"pid" => Process.pid}, loops, tasks, {"pools" => pools})
      end

      private

      # Tasks may end meanwhile.
      def pause
        return unless @begun && Clock.now - @begun >= SLICE

        Insight.give_way
        @begun = Clock.now
      end

      def each_task
        Scheduler.open.each do |scheduler, _thread|
          pause
          scheduler.tasks.each_with_index do |task, index|
            pause if index % STEPS == 0
            yield task unless task.ended?
          end
        end
      end

      def details(traced, all)
        lines = +""
        each_task do |task|
          break if lines.bytesize > BYTES

          detail = @description.of(task)
          if all || traced[task.number]
            (detail ||= {})["backtrace"] = backtrace(task)
            pause
          end
          lines << JSON.generate({"detail" => task.number, **detail}) << "\n" if detail
        end
        lines
      end

      # The task, and those that it awaits, directly or not.
      def chain(number)
        awaits = {}
        each_task { |task| (detail = @description.of(task)) && awaits[task.number] = detail["awaits"] }
        found = {}
        queue = [number]
        while (following = queue.shift) && found.size < CHAIN
          next if found[following]

          found[following] = true
          queue.concat(awaits[following] || [])
        end
        found
      end

      # Where the threads are whose loops run a task: of those that wait, the tasks tell.
      def running
        Scheduler.open.filter_map do |scheduler, thread|
          pause
          next unless scheduler.tasks.any? { |task| task.status == :running }

          {"loop" => Insight.loop_number(scheduler), "backtrace" => frames(thread.backtrace)}
        end
      end

      def pools
        Pools.all.first(POOLS).map do |pool|
          pause
          Description.clean(pool.inspect)
        end
      end

      # Without the frames of the report itself.
      def backtrace(task)
        frames(task.backtrace&.drop_while { |frame| OWN.any? { |file| frame.b.start_with?(file) } })
      end

      def frames(frames) = (frames || []).first(FRAMES).map { |frame| Description.clean(frame) }

      def queries = {}

      def loop_row(scheduler, thread, index)
        {"loop" => index, "thread" => thread_name(thread), "backend" => scheduler.backend,
         "tasks" => scheduler.tasks.size}
      end

      def thread_name(thread)
        (thread == Thread.main) ? "main thread" : "thread #{Description.clean(thread.name || thread.inspect)}"
      end

      def task_row(task, index)
        waiting = task.waits_for
        state = state(task, waiting)
        row = {"task" => task.number, "parent" => task.parent_number, "loop" => index, "state" => state,
               "for" => task.waits_since, "left" => task.remaining, "backtrace" => backtrace(task)}
        name = task.name
        row["name"] = Description.clean(name) if name
        row["waits_for"] = Description.clean(waiting) if state == "waiting"
        row["ran"], row["ready"], row["turns"] = Insight.measured(task)
        row.merge(@description.of(task) || {})
      end

      def state(task, waiting)
        return task.status.to_s unless waiting # the task whose fiber polls waits, although its status is :running

        (waiting == "its turn") ? "ready" : "waiting"
      end

      OWN = [__FILE__, File.expand_path("../core/dump.rb", __dir__)].map(&:b).freeze
      private_constant :OWN
    end
  end
end
