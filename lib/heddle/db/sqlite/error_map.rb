# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # Makes Ruby's errors of SQLite's error codes. From "Result and Error Codes" of its documentation.
      #
      # @api private
      class ErrorMap
        # Extended codes, and the first byte for all others of a kind: class and SQLSTATE.
        ERRORS = {
          2067 => [UniqueViolation, "23505"], 1555 => [UniqueViolation, "23505"], 2579 => [UniqueViolation, "23505"],
          787 => [ForeignKeyViolation, "23503"], 1299 => [NotNullViolation, "23502"], 275 => [CheckViolation, "23514"],
          19 => [ConstraintViolation, "23000"], 3091 => [ConstraintViolation, "42804"],
          517 => [SerializationFailure, "40001"], # a read transaction wants to write, and somebody else has written
          5 => [LockTimeout, "55P03"], 6 => [ServerError, "55006"],
          8 => [ReadOnly, "25006"], 9 => [QueryCanceled, "57014"],
          1 => [ServerError, "42000"], 20 => [ServerError, "42804"], 18 => [ServerError, "54000"],
          7 => [ServerError, "53200"], 13 => [ServerError, "53100"], 10 => [ServerError, "58030"],
          11 => [ServerError, "XX001"], 26 => [ServerError, "XX001"], 14 => [ServerError, "58P01"],
          23 => [ServerError, "42501"]
        }.freeze
        HINTS = {
          6 => "rows of this connection are still being fetched: fetch all of them, or leave their each_row, first",
          8 => "the file, its folder or the connection allows only reads: look at their permissions, and at read_only:",
          10 => "the system refused to read or to write; look at the disk",
          11 => "do not write to it any more: copy the file, then use SQLite's command .recover, or a backup",
          13 => "nothing of the statement was stored: make room on the disk, or raise max_page_count",
          14 => "see whether the folder exists, and the file too (create: false and read_only: make none), and " \
            "whether this user may write to them",
          517 => "another connection has written since this one began to read, in a transaction or rows that are " \
            "still being fetched: end what reads, and run the statement again",
          26 => "see whether the file is an SQLite database at all; an encrypted database does not look like one"
        }.freeze
        OTHER = [ServerError, "HY000"].freeze
        BUSY = 5
        LOCKED = "database is locked"
        # SQLITE_LOCKED: a connection's own unread rows are in the way. Without a shared cache no other connection locks
        # a single table. SQLite also reports BUSY, with another message, if it refuses to replace a function that a
        # statement is using.
        OWN = 6
        private_constant :ERRORS, :HINTS, :OTHER, :BUSY, :LOCKED, :OWN

        # @param path [String] of the database
        def initialize(path)
          @path = path
          @queue = nil
          @waiter = nil
        end

        # @param queue [WaitQueue]
        # @param waiter [Waiter]
        def attach(queue, waiter)
          @queue = queue
          @waiter = waiter
        end

        # @param code [Integer] SQLite's extended result code
        # @param message [String]
        # @param offset [Integer] where in the text of the statement, in bytes; -1 if SQLite does not know
        # @return [ServerError]
        def error(code, message, offset)
          kind = code & 0xff
          kind = code = OWN if kind == BUSY && message != LOCKED
          type, state = ERRORS[code] || ERRORS[kind] || OTHER
          hint = HINTS[code] || HINTS[kind]
          message = "#{message} (#{place(kind)})" if (HINTS[kind] && kind != OWN) || (kind == BUSY && !hint)
          type.new(message, code: code, sql_state: state, hint: hint, offset: (offset if offset >= 0))
        end

        private

        def place(kind) = (kind == BUSY) ? "#{@path}: #{holder}" : @path

        def holder
          writer = @queue&.writer
          writer ? "held by a transaction of this process: #{writer}" : "held by another connection"
        end
      end
      private_constant :ErrorMap
    end
  end
end
