# frozen_string_literal: true

require "json"
require_relative "description"
require_relative "snapshot"

module Heddle
  module Insight
    # What only Ruby code can tell of this process: lines of JSON for the answer of the native thread.
    module Reporter
      # Seconds for which a slice of the report may keep the GVL.
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
            "program" => Description.clean($PROGRAM_NAME, 200), "user" => Process.euid, "namespace" => namespace) << "\n"
        end

        # @param question [String] "ps", "ps backtraces" or "why NUMBER"
        # @return [String] lines of JSON, each with its end
        def answer(question)
          verb, argument = question.split
          @begun = Clock.now
          description = Description.new(queries)
          traced = (verb == "why") ? chain(argument.to_i, description) : {}
          lines = details(description, traced, argument == "backtraces")
          lines << JSON.generate("ruby" => rest) << "\n"
        rescue => error
          JSON.generate("ruby" => nil, "reason" => Description.clean("#{error.class}: #{error.message}", 200)) << "\n"
        end

        # @return [Snapshot] of this process, made at once by the calling thread
        def snapshot(schedulers)
          description = Description.new(queries)
          loops = schedulers.map { |scheduler, thread| loop_row(scheduler, thread) }
          tasks = schedulers.each_with_index.flat_map do |(scheduler, _), index|
            scheduler.tasks.map { |task| task_row(task, index, description) }
          end
          Snapshot.new({"pid" => Process.pid}, loops, tasks, {"pools" => pools})
        end

        # @return [Array<String>] the backtrace of a task, without the frames of Heddle's own reports
        def backtrace(task)
          frames = task.backtrace or return []
          frames.first(FRAMES).map { |frame| Description.clean(frame) }.reject { |frame| OWN.any? { |file| frame.start_with?(file) } }
        end

        # @param thread [Thread]
        # @return [String]
        def thread_name(thread)
          return "main thread" if thread == Thread.main

          "thread #{Description.clean(thread.name || thread.inspect)}"
        end

        private

        def namespace
          File.readlink("/proc/self/ns/pid")
        rescue SystemCallError
          nil
        end

        # Lets other threads run once a slice is over. Tasks may end meanwhile.
        def pause
          return if Clock.now - @begun < SLICE

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

        def details(description, traced, all)
          lines = +""
          each_task do |task|
            break if lines.bytesize > BYTES

            detail = description.of(task)
            if all || traced[task.number]
              (detail ||= {})["backtrace"] = backtrace(task)
              pause
            end
            lines << JSON.generate(detail.merge("detail" => task.number)) << "\n" if detail
          end
          lines
        end

        # The task, and those that it awaits, directly or not.
        def chain(number, description)
          awaits = {}
          each_task { |task| awaits[task.number] = description.of(task)&.fetch("awaits", nil) || [] }
          found = {}
          queue = [number]
          while (next_number = queue.shift) && found.size < CHAIN
            next if found[next_number]

            found[next_number] = true
            queue.concat(awaits[next_number] || [])
          end
          found
        end

        def rest
          {"pools" => pools, "running" => running, "threads" => Thread.list.size}
        end

        # Where the threads are whose loops run a task: of those that wait, the tasks tell.
        def running
          Scheduler.open.filter_map do |scheduler, thread|
            next unless scheduler.tasks.any? { |task| task.status == :running }

            frames = thread.backtrace&.first(FRAMES)&.map { |frame| Description.clean(frame) }
            {"loop" => Insight.loop_number(scheduler), "backtrace" => frames}
          end
        end

        def pools
          Pools.all.first(POOLS).map do |pool|
            pause if @begun
            Description.clean(pool.inspect)
          end
        end

        def queries = {}

        def loop_row(scheduler, thread)
          {"loop" => scheduler.object_id, "thread" => thread_name(thread), "backend" => scheduler.backend,
           "tasks" => scheduler.tasks.size}
        end

        def task_row(task, index, description)
          waiting = task.waits_for
          row = {"task" => task.number, "parent" => task.parent_number, "loop" => index, "name" => task.name&.then { |name| Description.clean(name) },
                 "state" => state(task, waiting), "for" => task.waits_since, "left" => task.remaining, "backtrace" => backtrace(task)}
          row["waits_for"] = Description.clean(waiting) if row["state"] == "waiting"
          row["ran"], row["ready"], row["turns"] = Insight.measured(task)
          row.merge!(description.of(task) || {})
          row
        end

        def state(task, waiting)
          return task.status.to_s unless task.status == :waiting

          (waiting == "its turn") ? "ready" : "waiting"
        end
      end

      OWN = [__FILE__, File.expand_path("../core/dump.rb", __dir__)].map { |file| Description.clean(file) }.freeze
      private_constant :OWN
    end
  end
end
