# frozen_string_literal: true

require_relative "scheduling_delay"
require_relative "slowness"

# A hard deadline for every test, enforced by another process: a test may hang in C with the GVL held, where no thread
# of its own process could end it; and a thread for that would keep Ruby's own deadlock check from firing. Time for
# which the machine's load kept the process from running does not count.
#
# A late process is asked for the backtraces of its threads and fibers (SIGUSR2). If it cannot answer it gets SIGSEGV,
# which Ruby answers with its report of the C stack, and at last SIGKILL.
module Watchdog
  SECONDS = 60
  GRACE = Slowness.stretch(4)
  LEAST_DELAY = 0.1

  class << self
    include Heddle::Clock

    # Runs the block; the whole process ends if that takes more than +seconds+.
    def watch(name, seconds)
      start unless @pid
      # Does nothing in a child that a test forked: the deadline of its parent covers it.
      tell("#{seconds} #{name}\n")
      yield
    ensure
      tell("0\n")
    end

    private

    def start
      @pid = Process.pid
      reader, @writer = IO.pipe
      # Forked twice, so that the guard is not our child: some tests wait for every child that they have.
      between = fork do
        fork { guard(reader) }
        exit!(0)
      end
      Process.wait(between)
      reader.close
      trap("USR2") { give_up(caller) }
      at_exit { tell("end\n") }
    end

    def tell(line)
      @writer.syswrite(line) if @pid == Process.pid
    rescue SystemCallError, IOError
      nil # the guard is gone: the driver's own deadline remains
    end

    def guard(reader)
      Process.setsid
      trap("INT", "IGNORE")
      @writer.close
      name = deadline = delays = nil
      loop do
        if IO.select([reader], nil, nil, deadline && [deadline - now, 0].max)
          lines = reader.readpartial(65536).lines(chomp: true)
          exit!(0) if lines.include?("end")
          seconds, name = lines.last.split(" ", 2)
          deadline = seconds.to_f.zero? ? nil : now + seconds.to_f
          delays = SchedulingDelay.by_thread(@pid)
        elsif (delayed = SchedulingDelay.since(delays, @pid)) > LEAST_DELAY
          deadline = now + delayed
          delays = SchedulingDelay.by_thread(@pid)
        else
          terminate("#{name} did not end in time")
        end
      end
    rescue EOFError, SystemCallError
      exit!(0)
    end

    def terminate(message)
      $stderr.syswrite("\nwatchdog: #{message}\n")
      %w[USR2 SEGV KILL].each do |signal|
        Process.kill(signal, @pid)
        (GRACE * 20).round.times do
          sleep 0.05
          Process.kill(0, @pid)
        end
      end
    ensure
      exit!(1)
    end

    # Runs as a signal handler in the current fiber; only a blocking fiber can write past any scheduler.
    def give_up(interrupted)
      Fiber.new(blocking: true) do
        dump("interrupted", interrupted)
        Thread.list.each { |thread| dump(thread.inspect, thread.backtrace) }
        ObjectSpace.each_object(Fiber) { |fiber| dump(fiber.inspect, fiber.backtrace) if fiber.alive? }
      end.resume
    ensure
      exit!(70)
    end

    def dump(name, backtrace)
      $stderr.syswrite("#{name}\n    #{Array(backtrace).first(40).join("\n    ")}\n")
    end
  end

  # For Minitest::Test: +hard_deadline 120+ in a class that needs longer.
  module Hook
    def self.prepended(test)
      test.extend(ClassMethods)
    end

    def run
      Watchdog.watch("#{self.class}##{name}", Slowness.stretch(self.class.hard_deadline)) { super }
    end

    module ClassMethods
      def hard_deadline(seconds = nil)
        @hard_deadline = seconds if seconds
        @hard_deadline || (superclass.respond_to?(:hard_deadline) ? superclass.hard_deadline : SECONDS)
      end
    end
  end
end
