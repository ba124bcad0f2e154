# frozen_string_literal: true

require_relative "../insight/stall_target"
require_relative "../insight/stall_watch"

module Heddle
  class << self
    # Reports when a loop did not get to its other fibers for so long: how long it took, in which task, where in the
    # code, and why. All loops of this process are watched, those that start later, too; and plain threads that still
    # compute so long after their {Heddle.deadline}. A child of fork has the same watches.
    #
    # The stall is seen while it lasts, also where code in C holds the GVL, and is reported once the loop goes on. Each
    # place is reported once a second at most: {Stall#count} tells how often it was seen.
    #
    # On Linux the thread that stalls gets a signal, so that it looks at its own stack: URG, or WINCH where the program
    # has a handler for URG. Without either, and on other systems, fewer stalls have lines. Neither signal may get a
    # handler while a watch runs: from then on it is no longer sent. A system call of a library in C may fail with
    # EINTR, as it may by the signal with which Ruby itself interrupts threads.
    #
    # HEDDLE_WATCH_STALLS=0.05 in the environment does the same when Heddle is loaded, with reports to $stderr.
    #
    # @example
    #   Heddle.watch_stalls(0.05) { |stall| logger.warn(stall.to_s) }
    # @param limit [Numeric] seconds, at least 0.01. No shorter stall is reported; one that is longer by less than a
    #   tick of the kernel's clock (mostly 4 ms) may be missed
    # @param to [#call, Logger, IO, ActiveSupport::Notifications] what gets the reports, without a block: a callable;
    #   a logger, as warnings; an IO; ActiveSupport::Notifications, as events "stall.heddle" with the payload +:stall+.
    #   $stderr by default
    # @yieldparam stall [Stall] on a thread of the watch, not on the loop's. What the block raises is printed
    # @return [StallWatch]
    # @raise [ArgumentError] for a limit that is no such time, or with +to+ and a block
    # @raise [ThreadError] if no thread can be started
    def watch_stalls(limit = 0.05, to: nil, &block)
      raise ArgumentError, "pass either a block or to:, not both" if to && block

      watch = StallWatch.new(StallTarget.limit(limit), block || StallTarget.of(to || $stderr))
      StallWatch.add(watch)
      watch
    end
  end
end
