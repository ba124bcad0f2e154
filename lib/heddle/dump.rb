# frozen_string_literal: true

module Heddle
  # @api private Lists all tasks: name, state, what each waits for, since when, and where.
  module Dump
    module_function

    # @param scheduler [Scheduler]
    # @param backtrace [Boolean] whether to add each task's backtrace
    # @return [String]
    def text(scheduler, backtrace: true)
      tasks = scheduler.tasks
      lines = ["#{tasks.size} task#{"s" unless tasks.size == 1} on #{scheduler.inspect}"]
      tasks.each { |task| lines.concat(describe(task, backtrace)) }
      lines.join("\n")
    end

    def describe(task, backtrace)
      waiting = task.waits_for
      line = "#{task.inspect}#{format(" waits for %s, for %.3f s", waiting, task.waits_since) if waiting}"
      places = task.backtrace&.reject { |place| place.start_with?(__FILE__) } if backtrace # not this file's
      [line, *places&.map { |place| "    from #{place}" }]
    end
    private_class_method :describe
  end

  class << self
    # Lists all tasks of this thread's scheduler: name, state, what each waits for, since when, and where.
    #
    # @param io [IO, #write]
    # @return [nil]
    # @raise [SchedulerMissing] when this thread has no {Scheduler}
    def dump(io = $stderr)
      scheduler = Fiber.scheduler
      unless scheduler.is_a?(Loop)
        raise SchedulerMissing, "no tasks to dump: this thread has no active Heddle::Scheduler"
      end

      io.write(Dump.text(scheduler) << "\n")
      nil
    end

    # Dumps the main thread's tasks whenever the process gets the signal.
    #
    # @param signal [String] as Signal.trap takes it: "USR1", "INFO"
    # @return [Object] the previous handler
    def dump_on(signal, io = $stderr)
      Signal.trap(signal) { dump(io) if Fiber.scheduler.is_a?(Loop) }
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
