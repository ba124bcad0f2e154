# frozen_string_literal: true

require_relative "scheduler"

module Heddle
  # What the loops of this process have done, for a program that exports it: see {Heddle.metrics}.
  #
  # @example
  #   Heddle.metrics["heddle.loop.lag"].values #=> {{} => #<struct count=…, sum=…, counts=[…]>}
  module Metrics
    # One metric.
    #
    # @!attribute [r] name
    #   @return [String] "heddle.loop.lag"
    # @!attribute [r] kind
    #   @return [Symbol] `:counter` for numbers that only rise, `:gauge` or `:histogram`
    # @!attribute [r] unit
    #   @return [String] "s", or what is counted, in braces, as OpenTelemetry writes units
    # @!attribute [r] help
    #   @return [String] a line for people
    # @!attribute [r] values
    #   @return [Hash{Hash{Symbol => String} => Numeric, Distribution}] by labels; without any, the key is an empty Hash
    Metric = Struct.new(:name, :kind, :unit, :help, :values)

    # The value of a histogram.
    #
    # @!attribute [r] counts
    #   @return [Array<Integer>] how many were no longer than the bound in {BOUNDS} with the same index, and longer than
    #     the one before; the last of these is of those that were longer than all bounds
    # @!attribute [r] count
    #   @return [Integer] their sum
    # @!attribute [r] sum
    #   @return [Float] seconds
    Distribution = Struct.new(:counts, :count, :sum)

    # All metrics at one moment.
    class Snapshot
      include Enumerable

      # @param metrics [Array<Metric>]
      def initialize(metrics)
        @metrics = metrics
      end

      # @yieldparam metric [Metric]
      # @return [Enumerator, self]
      def each(&block)
        return @metrics.each unless block

        @metrics.each(&block)
        self
      end

      # @param name [String]
      # @return [Metric]
      # @raise [KeyError] for a name that no metric has
      def [](name)
        find { |metric| metric.name == name } ||
          raise(KeyError.new("Heddle has no metric #{name.inspect}: it has #{map(&:name).join(", ")}", receiver: self,
            key: name))
      end
    end

    # name, kind, unit, help, and the value: from what {.read} returns.
    DEFINITIONS = [
      ["heddle.tasks.started", :counter, "{task}", "Tasks that were started", :spawned],
      ["heddle.tasks.ended", :counter, "{task}", "Tasks that have ended, by their status", [:status, :ended]],
      ["heddle.tasks", :gauge, "{task}", "Tasks that have not ended", :tasks],
      ["heddle.fibers.reused", :counter, "{task}", "Tasks that ran on the fiber of another that had ended", :reused],
      ["heddle.fibers.idle", :gauge, "{fiber}", "Fibers kept for the next tasks", :idle_fibers],
      ["heddle.loops", :gauge, "{loop}", "Open loops, one for each thread that runs tasks", :loops],
      ["heddle.loop.switches", :counter, "{switch}", "Switches from one fiber to another", :switches],
      ["heddle.loop.ready", :gauge, "{fiber}", "Fibers that could run, but wait for their turn", :ready],
      ["heddle.loop.timers", :gauge, "{timer}", "Timers that are set", :timers],
      ["heddle.loop.polls", :counter, "{poll}", "Polls of the kernel", :polls],
      ["heddle.loop.polls.empty", :counter, "{poll}", "Polls of the kernel that found nothing", :empty_polls],
      ["heddle.loop.sleeps", :counter, "{poll}", "Polls of the kernel that were allowed to wait", :sleeps],
      ["heddle.loop.slept", :counter, "s", "Time for which loops had nothing to do", :slept],
      ["heddle.loop.system_calls", :counter, "{call}", "System calls made to wait and to move bytes", :system_calls],
      ["heddle.loop.lag", :histogram, "s", "How long fibers that could run waited for their turn", :lag],
      ["heddle.task.run", :histogram, "s", "How long fibers ran before they let others run", :run],
      ["heddle.task.wait", :histogram, "s", "How long fibers waited, by what they waited for", [:kind, :wait]],
      ["heddle.task.waits", :counter, "{wait}", "Waits of fibers, by what they waited for", [:kind, :waits]],
      ["heddle.pool.permits", :gauge, "{permit}", "Permits of semaphores and pools, by their class",
        [:pool, :pool_permits]],
      ["heddle.pool.used", :gauge, "{permit}", "Permits that are in use, by the pool's class", [:pool, :pool_used]],
      ["heddle.pool.waiting", :gauge, "{waiter}", "Tasks and threads that wait for a permit, by the pool's class",
        [:pool, :pool_waiting]],
      ["heddle.pool.wait", :histogram, "s", "How long tasks and threads waited for a permit, by the pool's class",
        [:pool, :pool_wait]],
      ["heddle.workers.busy", :gauge, "{thread}", "Worker threads that run a block, by what they are for",
        [:workers, :workers_busy]],
      ["heddle.workers.queued", :gauge, "{block}", "Blocks that wait for a worker thread, by what it is for",
        [:workers, :workers_queued]],
      ["heddle.names.resolved", :counter, "{name}", "Host names looked up, by the outcome", [:outcome, :names]]
    ].each(&:freeze).freeze
    private_constant :DEFINITIONS

    WORKERS = {} # rubocop:disable Style/MutableConstant -- those of each purpose, by its name

    class << self
      # @return [Snapshot]
      # @api private
      def snapshot
        numbers = read
        add_workers(numbers)
        add_fiber_pools(numbers)
        Snapshot.new(DEFINITIONS.map do |name, kind, unit, help, source|
          Metric.new(name, kind, unit, help, values(kind, source, numbers)).freeze
        end)
      end

      # @return [Hash{String => Array(Integer, Integer, Integer)}] by purpose: the threads that run a block, the blocks
      #   that wait for one, and the most threads, nil if there may be any number
      # @api private
      def workers
        WORKERS.to_a.to_h do |name, workers|
          [name.delete_prefix("heddle "), [*workers.use, (workers.limit if workers.limit.finite?)]]
        end
      end

      private

      # Of a copy: other threads add to the Hash, which takes no new key during an iteration.
      def add_workers(numbers)
        uses = workers
        numbers[:workers_busy] = uses.transform_values(&:first)
        numbers[:workers_queued] = uses.transform_values { |_, queued| queued }
      end

      def add_fiber_pools(numbers)
        pools = defined?(FiberPool) ? Pools.all.grep(FiberPool).map(&:use).transpose : []
        size, running, queued = pools.map(&:sum)
        numbers[:pool_permits]["Heddle::FiberPool"] = size || 0
        numbers[:pool_used]["Heddle::FiberPool"] = running || 0
        numbers[:pool_waiting]["Heddle::FiberPool"] = queued || 0
      end

      def values(kind, source, numbers)
        label, key = source
        return {{} => value(kind, numbers.fetch(source))} unless key

        numbers.fetch(key).to_h { |name, number| [{label => name.to_s}, value(kind, number)] }
      end

      def value(kind, number)
        (kind == :histogram) ? Distribution.new(*number.values_at(:counts, :count, :sum)).freeze : number
      end
    end
  end

  # What the loops of this process have done since its start: counters, gauges and histograms, each with name, unit,
  # help, and values by labels. Loops of other threads count, too, and those that have closed; a child of fork begins
  # with zeros. Takes a fraction of a millisecond, from any thread. The times of `heddle.loop.lag`, `heddle.task.run`
  # and `heddle.task.wait` are measured while {.measure_times?}.
  #
  # @return [Metrics::Snapshot]
  def self.metrics = Metrics.snapshot
end
