# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # A connection's place in the {Line} for the lock of its database. SQLite calls {#call} from the middle of a
      # statement that has found the database locked.
      #
      # @api private
      class Turn
        # Seconds: the first nap of the first one in the line, and the longest. Nothing tells when another process gives
        # up the lock.
        FIRST = 0.001
        LONGEST = 0.01
        # … and of those behind, who are woken.
        BEHIND = 0.1
        private_constant :FIRST, :LONGEST, :BEHIND

        # @param line [Line]
        # @param seconds [Float, nil] the most that a statement waits; nil for ever
        def initialize(line, seconds)
          @line = line
          @seconds = seconds
          @lock = Thread::Mutex.new
          @changed = Thread::ConditionVariable.new
          @woken = false
          @since = nil
        end

        # @return [Float, nil]
        attr_accessor :seconds

        # @return [Boolean]
        def waiting? = !@since.nil?

        # SQLite's busy handler.
        #
        # @param count [Integer] how often SQLite has asked for this lock
        # @return [Boolean] whether it is to try again
        def call(count)
          stand_in_line
          return false if over?

          nap([FIRST * (1 << [count, 8].min), LONGEST].min)
          wait_to_be_first
          !over?
        end

        # Stands behind those who wait already, before a statement that will want the lock.
        def queue_up
          stand_in_line
          wait_to_be_first
        end

        # The statement is over. The next one has its turn.
        def leave
          return unless @since

          @since = nil
          @line.leave(self)
          @line.wake
        end

        def wake
          @lock.synchronize do
            @woken = true
            @changed.signal
          end
        end

        private

        def stand_in_line
          return if @since

          @since = now
          @line.enter(self)
        end

        def wait_to_be_first
          nap(@seconds ? [BEHIND, @since + @seconds - now].min : BEHIND) until @line.first?(self) || over?
        end

        def over? = !@seconds.nil? && now - @since >= @seconds

        # Sleeps, unless woken meanwhile.
        def nap(seconds)
          @lock.synchronize do
            @changed.wait(@lock, [seconds, 0].max) unless @woken
            @woken = false
          end
        end

        def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
      private_constant :Turn
    end
  end
end
