# frozen_string_literal: true

module Heddle
  module DatabaseGems
    # The gem sqlite3. A statement runs in this process, so an interrupt leaves no query running. Only the wait for a
    # lock of another connection can be interrupted.
    class SQLite3
      WAIT = :@heddle_busy_wait
      private_constant :WAIT

      # Makes the connection wait for locks by {BusyWait}, for +timeout+ milliseconds, unless the program has a busy
      # handler of its own (ActiveRecord's +retries+).
      def prepare(raw)
        return if raw.instance_variable_defined?(WAIT)

        settings = yield
        wait = BusyWait.new(Integer(settings[:timeout]) / 1000.0) if settings[:timeout] && !settings[:retries]
        raw.instance_variable_set(WAIT, wait)
        raw.busy_handler(wait) if wait
      end

      # When the busy handler returns, Ruby 3.1 raises a thread's pending exceptions through SQLite's frames, and
      # SQLite's lock stays locked.
      if RUBY_VERSION < "3.3"
        def query(&block) = Thread.handle_interrupt(Object => :on_blocking, &block)
      else
        def query = yield
      end

      # Raises the exception that ended the wait for a lock, in place of the resulting SQLite3::BusyException.
      def settled?(raw, _error)
        raw.instance_variable_get(WAIT)&.settle
        true
      end

      def clean?(_raw) = true

      def closed?(raw) = raw.closed?

      def idle?(raw) = raw.closed? || !raw.transaction_active?

      # Closing the connection would delete a database in memory: only the transaction is rolled back.
      def close(raw)
        raw.rollback unless idle?(raw)
      end
    end
  end
end
