# frozen_string_literal: true

require_relative "../insight/reporter"
require_relative "../insight/text"

module Heddle
  # The report of {Heddle.dump}, which `heddle ps` shows, too.
  #
  # @api private
  module Dump
    module_function

    # @return [String] what all loops of the process do, and the pools
    def all = lines(Scheduler.open)

    # @param scheduler [Scheduler]
    # @return [String]
    def text(scheduler) = lines([[scheduler, Thread.current]])

    # Trap handlers call this, too.
    def lines(schedulers)
      Insight::Text.new(Insight::Reporter.snapshot(schedulers)).ps.join("\n")
    end
    private_class_method :lines
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
