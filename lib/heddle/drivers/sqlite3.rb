# frozen_string_literal: true

module Heddle
  module Drivers
    # The gem sqlite3. A statement runs in the program itself, so that nothing is left running. Only the wait for a lock
    # that another connection holds can be interrupted.
    class SQLite3
      WAIT = :@heddle_busy_wait
      private_constant :WAIT

      # Waits for locks by {BusyWait} from now on, for +timeout+ milliseconds, unless the program does so in its own way
      # (ActiveRecord's +retries+).
      def prepare(raw)
        return if raw.instance_variable_defined?(WAIT)

        settings = yield
        wait = BusyWait.new(Integer(settings[:timeout]) / 1000.0) if settings[:timeout] && !settings[:retries]
        raw.instance_variable_set(WAIT, wait)
        raw.busy_handler(wait) if wait
      end

      # Ruby 3.1 raises what is pending for a thread where the busy handler returns, through SQLite, whose lock stays locked.
      if RUBY_VERSION < "3.3"
        def query(&block) = Thread.handle_interrupt(Object => :on_blocking, &block)
      else
        def query = yield
      end

      # Raises what ended the wait for a lock, in place of the SQLite3::BusyException that came of it.
      def settled?(raw, _error)
        raw.instance_variable_get(WAIT)&.settle
        true
      end

      def clean?(_raw) = true

      def closed?(raw) = raw.closed?

      def idle?(raw) = raw.closed? || !raw.transaction_active?

      # What a database in memory holds must not go away with its connection: only the transaction does.
      def close(raw)
        raw.rollback unless idle?(raw)
      end
    end
  end
end
