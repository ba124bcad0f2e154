# frozen_string_literal: true

require_relative "../core/errors"

module Heddle
  module DB
    # Every error of a database includes this module. Errors of the system, a look-up or OpenSSL during a connect
    # (Errno::ECONNREFUSED, SocketError) are extended by it.
    module Error
      include Heddle::Error

      # @api private
      # @return [Exception] the same error with this message, extended by this module
      def self.mark(error, message)
        error.exception(message).extend(self)
      end
    end

    # The server refused a statement. The message is the server's, with control characters as \\xNN. The connection
    # stays usable: an error with which the server closes it is the cause of a {ConnectionLost}.
    class ServerError < StandardError
      include Error

      # For drivers in Ruby; those in C set the same variables.
      #
      # @param message [String] the server's, with control characters as \\xNN
      # @param attributes [Hash{Symbol => Object}] +code:+, +sql_state:+ and the others that this class can read
      # @api private
      def initialize(message = nil, **attributes)
        super(message)
        attributes.each { |name, value| instance_variable_set(:"@#{name}", value) }
      end

      # @return [Integer, nil] the server's number of the error; nil for databases without numbers
      attr_reader :code

      # @return [String] five characters, as in the SQL standard
      attr_reader :sql_state

      # @return [String, nil] the statement
      attr_reader :sql

      # @return [String, nil] more about the error; not all databases have this and the following attributes
      attr_reader :detail

      # @return [String, nil] what the server suggests
      attr_reader :hint

      # @return [Integer, nil] the position in {#sql}, in characters from 1
      attr_reader :position

      # @return [Integer, nil] which statement of an atomic pipeline failed, from 1; nil elsewhere, and for the commit
      attr_reader :statement_number

      # @return [String, nil] the object that the error is about
      attr_reader :schema, :table, :column, :constraint

      # @return [true, nil] whether the server refused to prepare the statement, and so has not begun it
      # @api private
      attr_reader :unprepared

      # @api private
      attr_writer :sql, :statement_number

      # @return [true, nil] whether the connection was in a transaction, and is not any more
      # @api private
      attr_accessor :ended_transaction

      # @return [Symbol, nil] how far the server had come with the statement: :refused (nothing of it was executed),
      #   :begun, or :completed (the end of its transaction failed); nil where that is not known
      # @api private
      attr_reader :stage

      # @return [true, nil] whether the server knew until when the statement's caller waits, and that time had passed
      #   when the error came
      # @api private
      attr_reader :late

      # @return [Boolean, nil] whether the server no longer had what this connection had prepared for the statement: it
      #   is prepared anew when it runs again
      # @api private
      attr_writer :stale

      # @return [Boolean] whether the same transaction may well succeed when it is run again: a deadlock, a conflict
      #   with another transaction, a wait for a lock that took too long, a kept statement that had to be prepared anew
      def retryable? = sql_state == "40001" || @stale == true

      # The server's further notes, one in each line: detail, hint, and the line of the statement with a caret under the
      # position. From Ruby 3.2 on it is part of +detailed_message+ and +full_message+, too.
      #
      # @return [String] the message and these lines
      def explanation = [message, *asides].join("\n")

      if method_defined?(:detailed_message)
        # Ruby calls it for full_message
        #
        # @api private
        def detailed_message(...) = [super, *asides].join("\n")
      end

      # @api private
      # @return [self] with the position in a text that has +characters+ characters less at its start
      def shift(characters)
        @position = (@position > characters) ? @position - characters : nil if @position
        self
      end

      # @api private
      # @return [self] with this hint, unless the server gave one
      def suggest(hint)
        @hint ||= hint
        self
      end

      # Columns of the statement's line that are shown on either side of the position.
      SHOWN = 60
      private_constant :SHOWN

      private

      def asides
        [("in statement #{statement_number} of the pipeline" if statement_number), ("detail: #{detail}" if detail),
          ("hint: #{hint}" if hint), *marked_line].compact
      end

      # The line, and a line with the caret under it.
      def marked_line
        return unless position && sql && position <= sql.length + 1

        before = sql[0, position - 1]
        line = sql.lines[number = before.count("\n")].to_s.chomp.gsub(/[[:cntrl:]]/, " ")
        column = before.length - (before.rindex("\n") || -1) - 1
        from = [column - SHOWN, 0].max
        head = "line #{number + 1}: #{"…" if from > 0}"
        rest = line.length > column + SHOWN
        ["#{head}#{line[from...(column + SHOWN)]}#{"…" if rest}", "#{" " * (head.length + column - from)}^"]
      rescue ArgumentError, EncodingError
        nil # not a text
      end
    end

    # A value breaks a rule of the table.
    class ConstraintViolation < ServerError; end

    # A unique column already has this value.
    class UniqueViolation < ConstraintViolation; end

    # A row refers to a row that does not exist, or is still referred to.
    class ForeignKeyViolation < ConstraintViolation; end

    # A NOT NULL column would get NULL.
    class NotNullViolation < ConstraintViolation; end

    # A CHECK constraint of the table does not hold.
    class CheckViolation < ConstraintViolation; end

    # A row conflicts with another one by a rule that compares whole rows, such as ranges that overlap.
    class ExclusionViolation < ConstraintViolation; end

    # Another transaction changed rows that this transaction read. Run the transaction again.
    class SerializationFailure < ServerError
      def retryable? = true
    end

    # Two transactions wait for each other; the server rolled this one back. Run the transaction again.
    class DeadlockDetected < ServerError
      def retryable? = true
    end

    # The wait for a lock took longer than the server allows.
    class LockTimeout < ServerError
      def retryable? = true
    end

    # The server stopped the statement: another client cancelled it, or it exceeded the server's time limit.
    class QueryCanceled < ServerError; end

    # The transaction, or the server, allows only reads.
    class ReadOnly < ServerError; end

    # The server rejected the log-in, or asked for something that the options do not allow; the message says which.
    class LoginFailed < StandardError
      include Error
    end

    # The connection ended, or was closed because an operation was interrupted. The server may or may not have executed
    # the last request.
    class ConnectionLost < IOError
      include Error
    end

    # The server violated the protocol. The connection is closed.
    class ProtocolError < IOError
      include Error
    end

    # Another fiber or thread uses this connection, or has a transaction open on it.
    class Busy < ThreadError
      include Error
    end

    # The state of the transaction does not allow the operation, and nothing was sent; or the server answered a commit
    # with a rollback, because a statement of the transaction had failed.
    class TransactionError < RuntimeError
      include Error
    end

    # A query returned more or fewer rows or columns than its method allows.
    class UnexpectedRows < RuntimeError
      include Error
    end

    # The server has reached its limit of prepared statements, and this statement has parameters.
    class StatementLimit < RuntimeError
      include Error
    end

    # A statement was used after its close, or on another connection.
    class StatementClosed < RuntimeError
      include Error
    end

    # The database does not have this method.
    class Unsupported < NoMethodError
      include Error
    end

    # A connect took longer than +connect_timeout+; the message names the server and the step that took too long.
    class ConnectTimeout < DeadlineExceeded
      include Error
    end

    # No connection of a pool became free in time.
    class PoolTimeout < Heddle::PoolTimeout
      include Error
    end
  end
end
