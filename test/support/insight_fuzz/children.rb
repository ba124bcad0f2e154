# frozen_string_literal: true

require_relative "judge"

module InsightFuzz
  # Forks of every kind, few enough that all end soon.
  class Children
    include Heddle::Clock

    MOST = 14
    HANGS = 25 # seconds
    private_constant :MOST, :HANGS

    # @param observers [Observers]
    # @yieldparam random [Random]
    # @yieldparam limit [Float] the block runs a load until then
    def initialize(observers, &load)
      @observers = observers
      @load = load
      @pid = Process.pid
      @pids = []
    end

    # Does nothing in a child.
    #
    # @param from [String] "handler" for a trap handler
    def make(random, from)
      return if Process.pid != @pid || @pids.size >= MOST

      seed = random.rand(1 << 30)
      @pids << case random.rand(5)
      when 0 then Process.spawn("sleep 0.05")
      when 1 then fork { exec("sleep 0.1") }
      else fork { child(Random.new(seed), from) }
      end
    end

    def wait
      @pids.each do |pid|
        Process.wait(pid)
      rescue Errno::ECHILD
        nil
      end
    end

    private

    def child(random, from)
      do_without_gc if RUBY_VERSION < "3.3"
      Judge.in_handler if from == "handler"
      Thread.new { sleep(HANGS) && Judge.fault("a child of a #{from} hangs").then { Process.kill(:SEGV, Process.pid) } }
      Judge.contained("a child of a #{from}") { act(random) }
      finish(random.rand(6))
    end

    # There GC marks fibers of threads that the child does not have, and may crash: see doc/ruby.md.
    def do_without_gc
      GC.disable
      GC.define_singleton_method(:start) { |**| nil }
    end

    def act(random)
      case random.rand(4)
      when 0 then nil
      when 1 then everything(random, 0.3)
      when 2
        fork { Judge.contained("a grandchild") { everything(random, 0.2) } }
        everything(random, 0.2)
      else
        @observers.watch(random, 0.01) { @observers.trace(random) { @load.call(random, now + 0.2) } }
        @observers.check_metrics({})
      end
    end

    def everything(random, seconds)
      limit = now + seconds
      @observers.watch(random) do
        thread = Thread.new { check_metrics_until(limit) }
        @observers.trace(random) { @load.call(random, limit) }
        thread.join
        Heddle.insight(false) if random.rand < 0.3
      end
    end

    def check_metrics_until(limit)
      seen = {}
      @observers.check_metrics(seen).then { sleep(0.01) } while now < limit
    end

    def finish(way)
      Judge.ending
      case way
      when 0 then exit!(0)
      when 1 then exit(0)
      when 2 then abort
      when 3 then Process.kill(:TERM, Process.pid)
      when 4 then Process.kill(:KILL, Process.pid)
      end
    end
  end
end
