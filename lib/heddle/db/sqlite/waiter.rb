# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # A connection's entry in the {WaitQueue} for the lock of its database. SQLite calls {#call} from the middle of a
      # statement that has found the database locked.
      #
      # @api private
      class Waiter
        # Seconds: the first nap of the first waiter in the queue, and the longest. Nothing tells when another process
        # gives up the lock.
        FIRST = 0.001
        LONGEST = 0.01
        # … and of those behind, who are woken.
        BEHIND = 0.1
        NEVER = {Object => :never}.freeze
        private_constant :FIRST, :LONGEST, :BEHIND, :NEVER

        # @param queue [WaitQueue]
        # @param seconds [Float, nil] the most that a statement waits; nil for ever
        def initialize(queue, seconds)
          @queue = queue
          @seconds = seconds
          @lock = Thread::Mutex.new
          @changed = Thread::ConditionVariable.new
          @woken = false
        end

        # @return [Float, nil]
        attr_accessor :seconds

        # SQLite's busy handler.
        #
        # @param count [Integer] how often SQLite has asked for this lock
        # @return [Boolean] whether it is to try again
        def call(count)
          since = @queue.enter(self)
          return false if over?(since)

          nap([FIRST * (1 << [count, 8].min), LONGEST].min)
          wait_to_be_first(since)
          !over?(since)
        end

        # Stands behind those who wait already, before a statement that will want the lock.
        def queue_up = wait_to_be_first(@queue.enter(self))

        # The statement is over: the next waiter may try. A waiter that stayed in the queue would hold up all others
        # until their time is over, so exceptions are masked.
        def leave
          waited = Thread.handle_interrupt(NEVER) { @queue.leave(self) }
          @queue.wake if waited
        end

        # Called by the connection when it has run a statement, if anybody waits.
        #
        # @param in_transaction [Boolean] whether the connection may still hold the lock
        def let_others_in(in_transaction)
          leave
          @queue.wake unless in_transaction
        end

        def wake
          @lock.synchronize do
            @woken = true
            @changed.signal
          end
        end

        private

        def wait_to_be_first(since)
          nap(@seconds ? [BEHIND, since + @seconds - Clock.now].min : BEHIND) until @queue.first?(self) || over?(since)
        end

        def over?(since) = !@seconds.nil? && Clock.now - since >= @seconds

        # Sleeps, unless woken meanwhile.
        def nap(seconds)
          @lock.synchronize do
            @changed.wait(@lock, [seconds, 0].max) unless @woken
            @woken = false
          end
        end
      end
      private_constant :Waiter
    end
  end
end
