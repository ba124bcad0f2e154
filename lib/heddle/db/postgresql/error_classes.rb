# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # The classes of the server's errors by SQLSTATE; all others are {ServerError}. From "PostgreSQL Error Codes" of
      # the manual.
      #
      # @api private
      ERROR_CLASSES = {
        "23505" => UniqueViolation, "23503" => ForeignKeyViolation, "23502" => NotNullViolation,
        "23514" => CheckViolation,
        "23P01" => ExclusionViolation, "23000" => ConstraintViolation, "23001" => ForeignKeyViolation,
        "40001" => SerializationFailure, "40P01" => DeadlockDetected, "55P03" => LockTimeout, "57014" => QueryCanceled,
        "25006" => ReadOnly
      }.freeze
      private_constant :ERROR_CLASSES
    end
  end
end
