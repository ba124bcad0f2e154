# frozen_string_literal: true

module Heddle
  # Lists all tasks: name, state, what each waits for, since when, the deadline that is left, and where; and the pools.
  #
  # @api private
  module Dump
    module_function

    # @return [String] what all loops of the process do, each with a header
    def all
      pid = Process.pid
      loops = Scheduler.open.map { |scheduler, thread| "process #{pid}, #{named(thread)}: #{text(scheduler)}" }
      [*loops, *pools].join("\n")
    end

    # @param scheduler [Scheduler]
    # @return [String]
    def text(scheduler)
      tasks = scheduler.tasks
      lines = ["#{tasks.size} task#{"s" unless tasks.size == 1} on #{scheduler.inspect}"]
      tasks.each { |task| lines.concat(describe(task)) }
      lines.join("\n")
    end

    def describe(task)
      waiting = task.waits_for
      line = utf8(task.inspect)
      line << format(" waits for %s, for %.3f s", utf8(waiting), task.waits_since) if waiting
      left = task.remaining
      line << format(", deadline in %.3f s", left) if left
      places = task.backtrace&.map { |place| utf8(place) }&.reject { |place| place.start_with?(FILE) }
      [line, *places&.map { |place| "    from #{place}" }]
    end

    # Without a locale the path of a file is US-ASCII, whatever it contains, and cannot be joined to the name of a task.
    def utf8(text)
      text.dup.force_encoding(Encoding::UTF_8).scrub("?")
    end

    def named(thread)
      return "main thread" if thread == Thread.main

      "thread #{utf8(thread.name || thread.inspect)}"
    end

    # Nobody keeps a list of them: a dump is rare. Unreferenced ones may be among them.
    def pools
      kinds = []
      kinds << FiberPool if defined?(FiberPool)
      kinds << ResourcePool << Semaphore
      kinds.flat_map { |kind| ObjectSpace.each_object(kind).map { |pool| utf8(pool.inspect) } }
    end
    private_class_method :describe, :utf8, :named, :pools

    FILE = utf8(__FILE__)
    private_constant :FILE
  end

  class << self
    # Lists the tasks of all loops in this process, those of other threads too: name, state, what each waits for (with
    # the peer of a socket), since when, the seconds left of its deadline, and where. Then the pools.
    #
    # @param io [IO, #write]
    # @return [nil]
    # @raise [SchedulerMissing] when no thread of the process has an active loop of Heddle's
    def dump(io = $stderr)
      if Scheduler.open.empty?
        raise SchedulerMissing, "no tasks to dump: no thread of this process has an active Heddle::Scheduler"
      end

      io.write(Dump.all << "\n")
      nil
    end

    # Dumps all tasks of the process, as {.dump} does, whenever the process gets the signal. A handler that was there
    # before is called afterwards.
    #
    # Servers use most signals themselves: Puma takes USR1, USR2, TTIN, TTOU, URG and HUP, Sidekiq TTIN and TSTP. IO,
    # PROF and WINCH are free in most programs.
    #
    # @param signal [String] as Signal.trap takes it: "IO", "PROF"
    # @return [Object] the previous handler
    def dump_on(signal, io = $stderr)
      previous = nil
      previous = Signal.trap(signal) do |number|
        if Scheduler.open.empty?
          io.write("process #{Process.pid}: no tasks, since no loop of Heddle's is open\n")
        else
          dump(io)
        end
        previous.call(number) if previous.respond_to?(:call)
      end
    end

    # @return [Hash, nil] {Scheduler#statistics} of this thread's scheduler; nil without a {Scheduler}
    def stats
      scheduler = Fiber.scheduler
      scheduler.statistics if scheduler.is_a?(Loop)
    end

    # @api private
    def deadlock_error(scheduler)
      Deadlock.new("no timer, descriptor, child process or other thread is left to wake these tasks:\n" \
        "#{Dump.text(scheduler)}")
    end
  end
end
