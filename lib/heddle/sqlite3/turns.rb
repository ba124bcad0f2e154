# frozen_string_literal: true

module Heddle
  module SQLite3
    # The handlers of a connection of the gem (ext/heddle/db/sqlite/handlers.c).
    Handlers = DB::SQLite.const_get(:Handlers)

    # Whose turn it is to use a connection. A fiber that is in the middle of a statement, and lets others run, goes
    # first; all others wait.
    class Handlers
      # Seconds: the first nap and the longest of one that waits. Nothing tells when the statement has ended.
      FIRST = 0.001
      LONGEST = 0.005
      private_constant :FIRST, :LONGEST

      # Waits until no other fiber is in the middle of a call.
      #
      # @param statement [SQLite3::Statement, nil] what is about to run
      def enter(statement = nil)
        await_turn if suspended?
        begin_statement(statement) if statement_timeout?
      end

      private

      def await_turn
        nap = FIRST
        while suspended?
          sleep(nap)
          nap = [nap * 2, LONGEST].min
        end
      end
    end
    private_constant :Handlers
  end
end
