# frozen_string_literal: true

module Heddle
  module AsyncLoop
    # The end of a `with_timeout` block, for code inside that moves or cancels it. Stands for both the timer and the
    # list of timers that Async::Timeout expects.
    class TimeoutHandle
      # Yields what this version of Async passes to the block.
      def self.open(scheduler, scope)
        handle = new(scheduler, scope)
        yield defined?(::Async::Timeout) ? ::Async::Timeout.new(handle, handle) : handle
      ensure
        handle&.leave
      end

      def initialize(scheduler, scope)
        @scheduler = scheduler
        @scope = scope
        @cancelled = false
      end

      # Async::Timeout asks its list of timers for the time.
      def now = Clock.now

      def time = @scope ? @scheduler.end_of(@scope) : @time

      # What the timer would call; nil after #cancel!.
      def block = cancelled? ? nil : self

      def cancel!
        return if cancelled?

        @time = time
        @cancelled = true
        @scheduler.move_end(@scope, nil)
      end

      def cancelled? = @cancelled || @scope.nil?

      # @param instant [Float] of {#now}'s clock
      def schedule(instant, _block)
        if @scope
          @scheduler.move_end(@scope, instant)
          @cancelled = false
        end
        self
      end

      # The block has been left: its scope may serve another block now.
      def leave
        @time = time
        @scope = nil
      end
    end
    private_constant :TimeoutHandle
  end
end
