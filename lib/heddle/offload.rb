# frozen_string_literal: true

require_relative "worker_threads"

module Heddle
  # The threads of {Heddle.offload}.
  module Offload
    # How many there are at most, unless it is changed.
    THREADS = 32

    # Seconds that an interrupted block has to end.
    GRACE = 1.0

    WORKERS = WorkerThreads.new("heddle offload", THREADS)
    private_constant :WORKERS

    class << self
      # @return [Integer] how many blocks run at once at most; others wait for their turn. Blocks that wait for what others of them do
      #   (the holder of a lock, say) need a thread each
      def threads = WORKERS.limit

      # @param count [Integer] how many blocks may run at once from now on
      def threads=(count)
        raise TypeError, "the number of threads is a whole number, not #{count.inspect}" unless count.is_a?(Integer)
        raise ArgumentError, "the number of threads is 1 or more, not #{count}" if count < 1

        WORKERS.limit = count
      end

      # @api private Runs the block on one of the threads; the calling fiber or thread waits.
      def run(&block)
        WORKERS.run(block, grace: GRACE)
      end
    end
  end

  class << self
    # Runs a block that would stop the loop (a C library that waits by itself, a long computation in C without Ruby's lock,
    # a slow disk) on one of a few Ruby threads. Only the calling task waits. Where no scheduler is active the block simply
    # runs.
    #
    # The block's value is returned and its error raised, with the block's backtrace above the caller's. When a deadline, a
    # cancel or an interrupt ends the task's wait, the block's thread gets the same exception. A block that does not end
    # within {Offload::GRACE} seconds of it is reported on stderr and left to itself.
    #
    # The block runs in another thread, on its root fiber, which Heddle clears between blocks. It sees a copy of the caller's
    # fiber storage (Ruby >= 3.2), but neither its fiber-locals nor its thread variables, it does not hold the Mutexes that
    # the caller holds, and `break`, `throw` and `return` cannot leave it. Within it there is no scheduler: {Heddle.spawn}
    # raises.
    #
    # @example
    #   Heddle.run { Heddle.offload { SQLite3::Database.new(path).execute(sql) } }
    # @yield the work
    # @return [Object] the block's value
    def offload(&block)
      raise ArgumentError, "Heddle.offload needs a block: the work to do on a thread" unless block
      return yield unless Fiber.current_scheduler

      Offload.run(&block)
    end
  end
end
