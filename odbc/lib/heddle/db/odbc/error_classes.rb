# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # The class of an error: by the server's number where that tells, else by its SQLSTATE, else by the message.
      # SQLSTATE: the SQL standard, and appendix A of the "ODBC Programmer's Reference".
      #
      # @api private
      module ErrorClasses
        STATES = {
          "23505" => UniqueViolation, "23503" => ForeignKeyViolation, "23502" => NotNullViolation,
          "23514" => CheckViolation, "23P01" => ExclusionViolation, "23001" => ForeignKeyViolation,
          "40001" => SerializationFailure, "40P01" => DeadlockDetected, "55P03" => LockTimeout,
          "57014" => QueryCanceled, "HY008" => QueryCanceled, "HYT00" => QueryCanceled, "25006" => ReadOnly
        }.freeze

        NUMBERS = {
          # "Server Error Message Reference" of MySQL's manual, "MariaDB Error Codes"
          mysql: {
            UniqueViolation => [1062, 1169, 1557, 1586], ForeignKeyViolation => [1216, 1217, 1451, 1452, 1761, 1762],
            NotNullViolation => [1048, 1364, 1566], CheckViolation => [3819, 4025],
            SerializationFailure => [1020], DeadlockDetected => [1213, 1614, 3132], LockTimeout => [1205, 3572],
            QueryCanceled => [1317, 1969, 3024], ReadOnly => [1290, 1792, 1836]
          },
          # "Database Engine events and errors" of SQL Server's documentation
          sqlserver: {
            UniqueViolation => [2601, 2627], NotNullViolation => [515], DeadlockDetected => [1205],
            LockTimeout => [1222], SerializationFailure => [3960], ReadOnly => [3906]
          },
          # "Result and Error Codes" of SQLite's documentation
          sqlite: {LockTimeout => [5, 6], ReadOnly => [8], QueryCanceled => [9]}
        }.transform_values { |classes| classes.flat_map { |name, codes| codes.map { |code| [code, name] } }.to_h }
          .freeze

        # Servers that give several kinds of broken constraints one number.
        MESSAGES = {
          sqlite: {/UNIQUE constraint failed|PRIMARY KEY must be unique/ => UniqueViolation,
                   /FOREIGN KEY constraint failed/ => ForeignKeyViolation,
                   /NOT NULL constraint failed/ => NotNullViolation, /CHECK constraint failed/ => CheckViolation},
          sqlserver: {/FOREIGN KEY|REFERENCE/ => ForeignKeyViolation, /CHECK constraint/ => CheckViolation}
        }.freeze

        # Numbers of clients that say that the connection is gone, for not all drivers give the SQLSTATE 08S01.
        LOST = {mysql: [2006, 2013, 2055]}.freeze
        LOST_STATES = %w[57P01 57P02 57P03].freeze

        # The state of errors for which there is no other.
        ANY = "HY000"
        private_constant :STATES, :NUMBERS, :MESSAGES, :LOST, :LOST_STATES

        class << self
          # @param family [Symbol, nil] see {Server#family}
          # @return [Class]
          def of(family, state, code, message)
            by_number = NUMBERS.dig(family, code)
            return by_number if by_number
            return STATES[state] if STATES.key?(state)

            MESSAGES.fetch(family, {}).each { |pattern, error_class| return error_class if pattern.match?(message) }
            state.start_with?("23") ? ConstraintViolation : ServerError
          end

          # @return [Boolean] whether the connection is gone
          def lost?(family, error)
            error.sql_state.start_with?("08") || LOST_STATES.include?(error.sql_state) ||
              LOST.fetch(family, []).include?(error.code)
          end
        end
      end
      private_constant :ErrorClasses
    end
  end
end
