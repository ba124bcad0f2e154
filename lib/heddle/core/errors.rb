# frozen_string_literal: true

require "socket"
require "timeout"

module Heddle
  # Every error of Heddle's own but {Cancellation} includes this module, and inherits from a class that callers rescue
  # anyway.
  module Error; end

  # Raised inside a cancelled task, so that its `ensure` blocks run. Not a StandardError: a `rescue => error` around a
  # retry must not keep a cancelled task alive, and neither must a `rescue Heddle::Error`. A task that rescues
  # Cancellation itself continues.
  class Cancellation < Exception; end # rubocop:disable Lint/InheritException

  # Raised by a wait in the block of a {Heddle.deadline} whose time is over. Also replaces any other error that leaves
  # the block afterwards, and has that error as its cause: message and backtrace are then those of the first wait that
  # the deadline ended, in a task with the peer's address. The connection that waited is in mid-exchange: close it.
  class DeadlineExceeded < Timeout::Error
    include Error
  end

  # Raised by {Task#value} of a cancelled task. Its cause is the {Task#error}, if there is one.
  class TaskCancelled < StandardError
    include Error
  end

  # {Heddle.spawn} was called where no scheduler is active.
  class SchedulerMissing < RuntimeError
    include Error
  end

  # A scheduler was used after it was closed.
  class SchedulerClosed < RuntimeError
    include Error
  end

  # A scheduler was used from a thread that does not own it.
  class WrongThread < ThreadError
    include Error
  end

  # The system cannot create another fiber; the message names the limit. Running tasks continue.
  class LimitReached < FiberError
    include Error
  end

  # HEDDLE_BACKEND names a backend that this build or this kernel does not have.
  class BackendUnavailable < NotImplementedError
    include Error
  end

  # Every task waits for another task, and no timer, descriptor or thread can wake any. Raised from {Heddle.run}; the
  # message lists the tasks.
  class Deadlock < ThreadError
    include Error
  end

  # {Heddle.trace} was called while another trace of this process is being written.
  class TraceInProgress < RuntimeError
    include Error
  end

  # A filter ({Heddle.connect_filter}) refused each address that was to be connected to; the message names the first.
  # The +cause+ is the filter's own error, if it raised one.
  class ConnectRefused < SocketError
    include Error

    # @return [Addrinfo, nil] the first address that was refused
    attr_reader :address

    # @return [String, nil] the host that the program asked to connect to; a UNIX socket's path
    attr_reader :host

    def initialize(message = nil, address = nil, host = nil)
      super(message)
      @address = address
      @host = host
    end
  end

  # An item, a value or an error cannot be sent to another process; the message names the item. See {Processes}.
  class NotMarshalable < TypeError
    include Error
  end

  # A worker process ended before its work was done, or sent a malformed answer. See {Processes}.
  class WorkerLost < RuntimeError
    include Error

    # @return [Array] the worker's items; their work may be partly done
    attr_reader :items

    # @return [Process::Status, nil] nil when it is not known
    attr_reader :status

    def initialize(message = nil, items = [], status = nil)
      super(message)
      @items = items
      @status = status
    end
  end

  # None of a pool's resources became free in time.
  class PoolTimeout < DeadlineExceeded
    include Error
  end

  # A pool or a semaphore was used after it was closed.
  class PoolClosed < ClosedQueueError
    include Error
  end

  # The {Stream} is closed because an earlier operation was interrupted; the message says why.
  class StreamClosed < IOError
    include Error
  end

  # Two fibers or threads read from one {Stream} at the same time, or write to it.
  class StreamBusy < ThreadError
    include Error
  end

  # The peer of a {Stream} closed the connection in the middle of a message. The stream is closed.
  class UnexpectedEnd < EOFError
    include Error
  end

  # The peer of a {Stream} sent more than `buffer_limit` bytes: a line without an end, or replies to a client that never
  # reads. The stream is closed.
  class BufferLimitExceeded < IOError
    include Error
  end
end
