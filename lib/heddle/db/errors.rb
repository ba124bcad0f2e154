# frozen_string_literal: true

require_relative "../errors"

module Heddle
  module DB
    # Every error of a database includes this module; what the system, a look-up or OpenSSL says while connecting
    # (Errno::ECONNREFUSED, SocketError) is extended by it.
    module Error
      include Heddle::Error

      # @api private
      # @return [Exception] the same error with that message, rescued by this module too
      def self.mark(error, message)
        error.exception(message).extend(self)
      end
    end

    # The server refused a statement; what it said is the message, with control characters as \\xNN. The connection goes on:
    # an error with which the server ends it is the cause of a {ConnectionLost}.
    class ServerError < StandardError
      include Error

      # @return [Integer] the server's number for it
      attr_reader :code

      # @return [String] five characters, as in the SQL standard
      attr_reader :sql_state

      # @return [String, nil]
      attr_reader :sql

      # @api private
      attr_writer :sql

      # Deadlocks, and waits for a lock that took too long: the same transaction may well succeed when it is run again.
      def retryable?
        sql_state == "40001" || code == 1205
      end
    end

    # The server did not let us in, or asked for what is not given: the message says which.
    class LoginFailed < StandardError
      include Error
    end

    # The connection ended, or was closed because what it was doing was interrupted. Whether the server did what it was asked
    # last is not known.
    class ConnectionLost < IOError
      include Error
    end

    # The server sent what the protocol does not allow. The connection is closed.
    class ProtocolError < IOError
      include Error
    end

    # Another fiber or thread uses this connection, or has a transaction open on it.
    class Busy < ThreadError
      include Error
    end

    # What cannot be done in this state of a transaction: nothing was sent.
    class TransactionError < RuntimeError
      include Error
    end

    # A query gave more or fewer rows or columns than its caller said.
    class UnexpectedRows < RuntimeError
      include Error
    end

    # The server keeps as many prepared statements as it may, and this one has parameters.
    class StatementLimit < RuntimeError
      include Error
    end

    # A statement was used after its close, or on another connection.
    class StatementClosed < RuntimeError
      include Error
    end

    # A connect took longer than +connect_timeout+; the message says to which server, and what it waited for.
    class ConnectTimeout < DeadlineExceeded
      include Error
    end

    # No connection of a pool became free in time.
    class PoolTimeout < DeadlineExceeded
      include Error
    end
  end
end
