# frozen_string_literal: true

require "heddle" unless defined?(Heddle::Scheduler)
require_relative "worker_threads"

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
  # never do.
  module BlockingOperations
    # How many run at once, at most; the others wait for their turn.
    THREADS = 4

    WORKERS = WorkerThreads.new("heddle blocking operations", THREADS)
    private_constant :WORKERS

    # What Ruby >= 3.4 calls. The operation lives on the stack of the caller, which so has to wait for its end whatever
    # happens.
    #
    # @param operation [#call]
    # @return [Object] what the operation returned
    def blocking_operation_wait(operation)
      WORKERS.run(operation)
    end
  end

  Scheduler.include(BlockingOperations)
end
