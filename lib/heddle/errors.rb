# frozen_string_literal: true

require "timeout"

module Heddle
  # Every error of Heddle's own includes this module; each inherits from what a caller would rescue anyway.
  module Error; end

  # Raised inside a task that was cancelled, so that its `ensure` blocks run. Not a StandardError: a `rescue => error`
  # around a retry must not keep a cancelled task alive. Swallowing it lets the task go on.
  class Cancellation < Exception # rubocop:disable Lint/InheritException
    include Error
  end

  # A wait in the block of a {Heddle.deadline} whose time is over, and whatever error leaves that block afterwards (its
  # cause then). The connection that waited is in mid-conversation: close it.
  class DeadlineExceeded < Timeout::Error
    include Error
  end

  # {Task#value} of a task that was cancelled.
  class TaskCancelled < StandardError
    include Error
  end

  # {Heddle.spawn} where no scheduler is active.
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

  # The system has no room for another fiber; the message names the limit. What runs already goes on.
  class LimitReached < FiberError
    include Error
  end

  # HEDDLE_BACKEND names a backend that this build or this kernel has not.
  class BackendUnavailable < NotImplementedError
    include Error
  end

  # Every task waits for another one, and nothing is left that could wake any; raised from {Heddle.run}, with a dump.
  class Deadlock < ThreadError
    include Error
  end

  # An item, a value or an error cannot be sent to another process; the message names the item. See {Processes}.
  class NotMarshalable < TypeError
    include Error
  end

  # A worker process ended before its work was done, or sent what is no answer. See {Processes}.
  class WorkerLost < RuntimeError
    include Error

    # @return [Array] the items that it had; what was to be done with them may have been done in part
    attr_reader :items

    # @return [Process::Status, nil] nil when it is not known
    attr_reader :status

    def initialize(message = nil, items = [], status = nil)
      super(message)
      @items = items
      @status = status
    end
  end

  # A pool was used after it was closed.
  class PoolClosed < ClosedQueueError
    include Error
  end

  # An operation on a {Stream} that was closed because an earlier one did not come to its end; the message says why.
  class StreamClosed < IOError
    include Error
  end

  # Two fibers or threads read from one {Stream} at the same time, or write to it.
  class StreamBusy < ThreadError
    include Error
  end

  # The peer of a {Stream} closed the connection in the middle of what it had begun to send. The stream is closed.
  class UnexpectedEnd < EOFError
    include Error
  end

  # The peer of a {Stream} sent more than may be held at once: a line without an end, or replies to a client that only
  # writes. The stream is closed.
  class BufferLimitExceeded < IOError
    include Error
  end
end
