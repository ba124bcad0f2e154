# frozen_string_literal: true

module Heddle
  module SQLite3
    # The handlers of a connection of the gem (ext/heddle/db/sqlite/handlers.c).
    Handlers = DB::SQLite.const_get(:Handlers)

    # Whose turn it is to use a connection. A fiber that is in the middle of a statement, and lets others run, goes
    # first; all others wait.
    class Handlers
      # Seconds. A fiber that is resumed wakes those who wait; one that came too late for that looks again.
      PATIENCE = 0.02
      private_constant :PATIENCE

      # Waits until no other fiber is in the middle of a call.
      #
      # @param statement [SQLite3::Statement, nil] what is about to run
      def enter(statement = nil)
        await_turn if suspended?
        begin_statement(statement) if statement_timeout?
      end

      # Raises what ended the call, in place of SQLite's error.
      def leave
        error = take
        raise error, cause: error.cause if error
      end

      # Called when a fiber goes on with its call. Must not wait.
      def resumed = @resumed.broadcast

      private

      def await_turn
        @lock ||= Thread::Mutex.new
        @resumed ||= Thread::ConditionVariable.new
        @lock.synchronize do
          self.watched = true
          @resumed.wait(@lock, PATIENCE) while suspended?
        end
      end
    end
    private_constant :Handlers
  end
end
