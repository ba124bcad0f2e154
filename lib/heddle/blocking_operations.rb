# frozen_string_literal: true

require "heddle" unless defined?(Heddle::Scheduler)

module Heddle
  # Runs what blocks without asking the scheduler on a few Ruby threads, so that other tasks go on meanwhile: opening,
  # closing and looking up files on slow file systems, IO.copy_stream, zlib, arithmetic on huge numbers.
  #
  # Off unless it is required, which is for the whole process:
  #
  #   require "heddle/blocking_operations"
  #
  # Most such calls are over in microseconds, and the hop to a thread and back costs more than that: it pays where files
  # are on a network, or much is compressed. Ruby 3.4 and later ask for it (the hook blocking_operation_wait); earlier ones
  # never do; on 3.1 nothing is installed.
  module BlockingOperations
    # How many run at once, at most; the others wait for their turn.
    THREADS = 4

    # The threads, which end when there is nothing left to do for a second.
    class Workers
      IDLE_SECONDS = 1

      # @param limit [Integer] how many threads there are, at most
      def initialize(limit)
        @limit = limit
        @lock = Thread::Mutex.new
        reset
      end

      # Runs the operation on one of the threads. Parks the calling fiber until it is done.
      #
      # @param operation [#call]
      # @return [Object] what the operation returned
      # @raise [Exception] what the operation raised
      def run(operation)
        reset unless @pid == Process.pid
        done = Thread::Queue.new
        @work << [operation, done]
        start_one
        error, value = done.pop
        raise error if error

        value
      end

      private

      # A child of fork has none of the threads.
      def reset
        @pid = Process.pid
        @work = Thread::Queue.new
        @threads = 0
      end

      def start_one
        @lock.synchronize do
          return if @threads >= @limit || @work.num_waiting >= @work.size

          @threads += 1
        end
        Thread.new { serve }.name = "heddle blocking operations"
      end

      def serve
        while (operation, done = @work.pop(timeout: IDLE_SECONDS))
          done << perform(operation)
        end
      ensure
        @lock.synchronize { @threads -= 1 }
      end

      def perform(operation)
        [nil, operation.call]
      rescue Exception => error # rubocop:disable Lint/RescueException
        [error, nil]
      end
    end
    private_constant :Workers

    WORKERS = Workers.new(THREADS)
    private_constant :WORKERS

    # What Ruby >= 3.4 calls.
    #
    # @param operation [#call]
    # @return [Object] what the operation returned
    def blocking_operation_wait(operation)
      WORKERS.run(operation)
    end
  end

  Scheduler.include(BlockingOperations) if RUBY_VERSION >= "3.2" # Queue#pop has a timeout
end
