# frozen_string_literal: true

require_relative "timeout_handle"
require_relative "task"
require_relative "transfer"
require_relative "transient"

module Heddle
  # What Async expects of its scheduler beyond the hooks of Fiber::Scheduler, on a loop of Heddle's. Included by
  # subclasses of Async::Scheduler, which keep the tree of tasks, `run`, `async`, `stop` and `close`.
  #
  # @api private
  module AsyncLoop
    # In place of io-event's selector: Async::Scheduler asks its own only for these two.
    Selector = Struct.new(:scheduler) do
      def wakeup = scheduler.wake

      def close = scheduler.__send__(:leave_loop)
    end

    # The children of the root. A child that becomes transient may be the last one that the root waits for.
    class Children < ::Async::Children
      def initialize(scheduler)
        super()
        @scheduler = scheduler
      end

      def adjust_transient_count(transient)
        super
        @scheduler.wake
      end
    end

    # The class's name in print_hierarchy and logs: as programs know it.
    module Name
      def to_s = superclass.include?(AsyncLoop) ? super : superclass.to_s
    end
    private_constant :Selector, :Children, :Name

    def self.included(klass)
      super
      klass.extend(Name)
    end

    def initialize(parent = nil, **options)
      start_loop
      @sampled_idle = 0.0
      @home = Fiber.current
      super(parent, **options, selector: Selector.new(self))
    end

    # Ends the wait of the fiber that runs the loop, which then looks at the tree.
    def wake
      fiber = @attendant
      unblock(nil, fiber) if fiber
      nil
    end

    # A task has left the tree.
    def consume
      super
      wake if finished?
    end

    # For `Fiber.schedule`. As in any loop of Heddle's, the caller's deadline does not bind the fiber: a library starts
    # its driver in whichever task asks first.
    def fiber(...) = start_unbound { super }

    # Public, because Ruby compares the caller of a protected method with the module that defines it.
    def add_child(child)
      @children ||= Children.new(self)
      super
    end

    # In a child of fork the tree is gone when a task of the parent's ends.
    def remove_child(child)
      super if @children
    end

    def run(...)
      outer = @runs
      @runs = true
      super
    ensure
      @runs = outer
    end

    # Raises at once, in the fiber that waits. The caller continues after all ready fibers. A stop waits for the end of
    # {Heddle.shield}.
    def raise(fiber, *arguments, **options)
      exception = RubyFixes.exception_of(*arguments, **options)
      return if exception.is_a?(::Async::Stop) && put_off(fiber, exception)

      raise_at_once(fiber, exception) ? nil : fiber.raise(exception)
    end

    # Of the time from the first round of the loop to the begin of its last poll, as in Async: neither what starts the
    # loop nor the wait that has just ended counts.
    def load
      polled = polled_at
      if @sampled_at && polled > @sampled_at && statistics[:polls] > @sampled_polls + 1
        idle = idle_time
        @idle_time += idle - @sampled_idle
        @busy_time += polled - @sampled_at - (idle - @sampled_idle)
        @sampled_at = polled
        @sampled_idle = idle
      end
      super
    end

    def with_timeout(duration, exception = ::Async::TimeoutError, message = "execution expired", &block)
      timed(duration.to_f, exception, message) do |scope|
        block.arity.zero? ? yield : TimeoutHandle.open(self, scope, &block)
      end
    end

    def scheduler_close(...)
      return discard if forked?

      super
    end

    # Async's #close raises if a fiber is still blocked.
    def terminate
      super.tap { note_blocked }
    end

    def close
      return discard if forked?
      return if closed?

      note_blocked
      @abandons = @interrupted # then Async's #close ends at once, and waits for no task
      super
    end

    private

    def leave_loop
      abandon_external_tasks if @abandons
      close_loop
    end

    def run_once!(timeout = nil)
      measure_load
      @attendant = Fiber.current
      one_round = !(@runs && timeout.nil?)
      timeout = 0 if @interrupted && @runs # by an #interrupt that came before the line above, and found nobody to wake
      attend(timeout && [timeout, 0].max, one_round)
      self.yield if one_round # what the poll has made ready, such as a call of #push, is of this round
      true
    ensure
      @attendant = nil
    end

    # For tasks that have been stopped there is nothing to note.
    def note_blocked
      @blocked = 1 if blocked_outside?
    end

    def measure_load
      return if @sampled_at

      @sampled_polls = statistics[:polls]
      @sampled_at = ::Async::Clock.now
    end

    # In a child of fork the tasks' fibers do not exist.
    def discard
      @children = nil
      @selector = nil
      close_loop
    end
  end
  private_constant :AsyncLoop
end
