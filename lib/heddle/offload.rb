# frozen_string_literal: true

require_relative "run"
require_relative "core/worker_threads"

module Heddle
  # The threads of {Heddle.offload}.
  module Offload
    # The most threads, unless {.threads=} changes it.
    THREADS = 32

    # Seconds that an interrupted block has to end.
    GRACE = 1.0

    WORKERS = WorkerThreads.new("heddle offload", THREADS)
    private_constant :WORKERS

    class << self
      # @return [Integer] the most blocks that run at once; others queue. Blocks that wait for each other (for a lock,
      #   say) need a thread each
      def threads = WORKERS.limit

      # @param count [Integer] how many blocks may run at once from now on
      def threads=(count)
        raise TypeError, "the number of threads must be an Integer, not #{count.inspect}" unless count.is_a?(Integer)
        raise ArgumentError, "the number of threads must be at least 1, not #{count}" if count < 1

        WORKERS.limit = count
      end

      # Runs the block on one of the threads; the calling fiber or thread waits.
      #
      # @api private
      def run(&block)
        WORKERS.run(block, grace: GRACE)
      end
    end
  end

  class << self
    # Runs a block that would stop the loop (a C library with waits of its own, a long computation in C without the GVL,
    # a slow disk) on one of a few Ruby threads. Only the calling task waits. Without an active scheduler the caller
    # runs the block itself.
    #
    # Returns the block's value, or raises its error with the block's backtrace above the caller's. When a deadline, a
    # cancel or an interrupt ends the task's wait, the block's thread gets the same exception. If the block then does
    # not end within {Offload::GRACE} seconds, Heddle reports it on stderr and abandons it.
    #
    # The block runs on the root fiber of another thread, which Heddle clears between blocks. The block sees a copy of
    # the caller's fiber storage (Ruby >= 3.2), but not the caller's fiber-locals and thread variables. It does not hold
    # the caller's Mutexes, and `break`, `throw` and `return` cannot leave it. No scheduler is active in the block:
    # {Heddle.spawn} raises.
    #
    # @example
    #   Heddle.run { Heddle.offload { SQLite3::Database.new(path).execute(sql) } }
    # @yield on another thread
    # @return [Object] the block's value
    def offload(&block)
      raise ArgumentError, "Heddle.offload needs a block to run on a thread" unless block
      return yield unless Fiber.current_scheduler

      filters = ConnectFilter.nested
      filters.empty? ? Offload.run(&block) : Offload.run { ConnectFilter.within_all(filters, &block) }
    end
  end
end
