# frozen_string_literal: true

require_relative "description"
require_relative "snapshot"
require_relative "sql"

module Heddle
  module Insight
    # What only Ruby code can tell of this process.
    #
    # @api private
    class Reporter
      # Seconds for which a slice of a report may keep the GVL.
      SLICE = 0.001
      STEPS = 32 # tasks between two looks at the clock
      FRAMES = 40
      BYTES = 32 << 20
      POOLS = 500
      CHAIN = 20
      LOOKED_AT = 1000 # tasks
      HOLDERS = 10
      LOCK = /[`'#](?:synchronize|lock|enter|mon_enter|mon_synchronize)'\z/
      PARKED = /[`'#](?:block|kernel_sleep|sleep)'\z/
      private_constant :SLICE, :STEPS, :FRAMES, :BYTES, :POOLS, :CHAIN, :LOOKED_AT, :HOLDERS, :LOCK, :PARKED

      class << self
        # @return [String] the line with which each answer of this process begins
        def head
          JSON.generate("heddle" => VERSION, "pid" => Process.pid, "parent" => Process.ppid, "ruby" => RUBY_VERSION,
            "program" => Clean.clean($PROGRAM_NAME, 200), "namespace" => namespace) << "\n"
        end

        # For the native thread that answers: adds lines of JSON. Lets other threads run after each slice.
        #
        # @param question [String] "ps", "ps backtraces" or "why NUMBER"
        # @return [void]
        def answer(question)
          verb, argument = question.split
          new(Clock.now).answer(verb, argument)
        rescue => error
          Insight.add(JSON.generate("ruby" => nil, "reason" => Clean.clean("#{error.class}: #{error.message}", 200)))
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
        @description = Description.new
      end

      # @return [void]
      def answer(verb, argument)
        add_details
        add_names
        queries.each { |number, query| Insight.add(JSON.generate("detail" => number, "query" => query)) }
        trace(chain(argument.to_i)) if verb == "why"
        trace(each_task) if argument == "backtraces"
        Insight.add(JSON.generate("ruby" => {"running" => running, **resources}))
      end

      # @return [Snapshot]
      def snapshot(schedulers)
        @queries = queries
        loops = schedulers.each_with_index.map { |(scheduler, thread), index| loop_row(scheduler, thread, index) }
        tasks = schedulers.each_with_index.flat_map do |(scheduler, _), index|
          scheduler.tasks.map { |task| task_row(task, index) }
        end
        Snapshot.new({"pid" => Process.pid}, loops, tasks, resources)
      end

      private

      # Tasks may end meanwhile.
      def pause
        give_way if @begun && Clock.now - @begun >= SLICE
      end

      def give_way
        Insight.give_way
        @begun = Clock.now
      end

      def add_details
        fragments = {}.compare_by_identity
        Scheduler.open.each do |scheduler, _thread|
          tasks = scheduler.tasks
          index = 0
          while index < tasks.size
            index = Insight.add_details(tasks, index, fragments) { |klass, object| fragment(klass, object) }
            give_way
          end
        end
      end

      def fragment(klass, object)
        return true if object.nil? && @description.single?(klass)

        JSON.generate(object.nil? ? @description.of_class(klass) : @description.of(object))[1..-2]
      end

      # Async's tasks have annotations, which change.
      def add_names
        Scheduler.open.each do |scheduler, _thread|
          next unless scheduler.respond_to?(:async)

          scheduler.tasks.each do |task|
            name = Names.of_task(task)
            Insight.add(JSON.generate("detail" => task.number, "name" => name)) if name
            pause
          end
        end
      end

      def each_task
        return to_enum(:each_task) unless block_given?

        Scheduler.open.each do |scheduler, _thread|
          scheduler.tasks.each_with_index do |task, index|
            pause if index % STEPS == 0
            yield task unless task.ended?
          end
        end
      end

      def trace(tasks)
        bytes = 0
        tasks.each do |task|
          line = JSON.generate("detail" => task.number, "backtrace" => backtrace(task))
          break if (bytes += line.bytesize) > BYTES

          Insight.add(line)
          pause
        end
      end

      # The task, and those that it awaits, directly or not.
      def chain(number)
        tasks = {}
        each_task { |task| tasks[task.number] = task }
        found = []
        queue = [number]
        while (following = queue.shift) && found.size < CHAIN
          task = tasks[following]
          next if !task || found.include?(task)

          found << task
          queue.concat(awaits(task, tasks))
        end
        found
      end

      def awaits(task, tasks)
        object = task.blocker
        return [] if object.nil?
        return @description.of(object)["awaits"] || [] unless Thread::Mutex === object

        holders = inside_of_locks(tasks, task)
        Insight.add(JSON.generate("detail" => task.number, "may_await" => holders)) unless holders.empty?
        holders
      end

      # Ruby does not tell who holds a Mutex: whoever called `synchronize` or `lock`, and is not waiting there, may.
      def inside_of_locks(tasks, waiting)
        tasks.each_value.first(LOOKED_AT).select do |task|
          pause
          next if task == waiting || task.ended?

          below = (task.backtrace || []).drop_while { |frame| frame.match?(LOCK) || frame.match?(PARKED) }
          below.any? { |frame| frame.match?(LOCK) }
        end.first(HOLDERS).map(&:number)
      end

      # The statements that tasks run, by the tasks' numbers.
      def queries
        Pools.all.select { |pool| connection?(pool) }.to_h do |connection|
          pause
          number, what = connection.running
          what = what.sql if what.respond_to?(:sql) && what.method(:sql).arity.zero?
          [number, (SQL.without_values(what) if what.is_a?(String))]
        end.compact
      end

      # Where the threads are whose loops run a task: of those that wait, the tasks tell.
      def running
        Scheduler.open.filter_map do |scheduler, thread|
          pause
          task = Insight.running(scheduler)
          {"loop" => Insight.loop_number(scheduler), "backtrace" => frames(thread.backtrace)} if task
        end
      end

      # What belongs to no task. A program may have loaded a part of Heddle.
      def resources
        connections, pools = Pools.all.partition { |pool| connection?(pool) }
        {"pools" => inspected(pools), "connections" => inspected(connections),
         "idle_http_connections" => idle_connections, "names_in_flight" => names_in_flight,
         "workers" => Heddle.const_defined?(:WorkerThreads) ? Metrics.workers : {},
         "threads" => Thread.list.size, "descriptors" => [descriptors, Process.getrlimit(:NOFILE).first]}
      end

      def idle_connections
        return {} unless NetHTTP.respond_to?(:idle_connections)

        NetHTTP.idle_connections.first(POOLS).to_h { |host, count| [Clean.clean(host), count] }
      end

      # A host may have a look-up for each family of addresses.
      def names_in_flight
        number, some = Insight.names_in_flight
        {"some" => some.map { |name| Clean.clean(name) }.uniq, "more" => number - some.size}
      end

      def connection?(pool) = Heddle.const_defined?(:DB) && DB::Connection === pool

      def inspected(objects)
        objects.first(POOLS).map do |object|
          pause
          Names.pool(object)
        end
      end

      def descriptors
        count = -1 # without the folder's own
        Dir.each_child("/dev/fd") { pause if ((count += 1) % STEPS).zero? }
        count
      rescue SystemCallError
        0
      end

      # Without the frames of the report itself.
      def backtrace(task)
        frames(task.backtrace&.drop_while { |frame| OWN.any? { |file| frame.b.start_with?(file) } })
      end

      def frames(frames) = (frames || []).first(FRAMES).map { |frame| Clean.clean(frame) }

      def loop_row(scheduler, thread, index)
        {"loop" => index, "thread" => Names.thread(thread), "backend" => scheduler.backend,
         "tasks" => scheduler.tasks.size}
      end

      def task_row(task, index)
        waiting = task.waits_for
        state = state(task, waiting)
        row = {"task" => task.number, "parent" => task.parent_number, "loop" => index, "state" => state,
               "for" => task.waits_since, "left" => task.remaining, "backtrace" => backtrace(task)}
        name = Names.of_task(task)
        row["name"] = name if name
        row["waits_for"] = Clean.clean(waiting) if state == "waiting"
        row["ran"], row["was_ready"], row["turns"] = Insight.measured(task)
        object = task.blocker
        row["query"] = @queries[task.number] if @queries[task.number]
        object.nil? ? row : row.merge(@description.of(object))
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
