# frozen_string_literal: true

require_relative "../heddle"
require_relative "core/worker_threads"

module Heddle
  # Runs operations that would block the loop on a few Ruby threads, while other tasks continue: opening, closing and
  # looking up files on slow file systems, IO.copy_stream, zlib, arithmetic on huge numbers.
  #
  # Active only if a program requires this file, and then for the whole process:
  #
  #   require "heddle/blocking_operations"
  #
  # Most such calls take microseconds, less than the hop to a thread and back. The threads pay off for files on a
  # network, or for much compression. Ruby 3.4 and later call the hook, blocking_operation_wait; earlier Rubies do not.
  module BlockingOperations
    # The most operations that run at once; others queue.
    THREADS = 4

    WORKERS = WorkerThreads.new("heddle blocking operations", THREADS)
    private_constant :WORKERS

    # The hook of Ruby >= 3.4. The operation lies on the caller's stack, so the caller must wait until the operation has
    # ended, whatever happens.
    #
    # @param operation [#call]
    # @return [Object] the operation's value
    def blocking_operation_wait(operation)
      WORKERS.run(operation)
    end
  end

  Loop.include(BlockingOperations)
end
