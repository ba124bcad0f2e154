# frozen_string_literal: true

module Heddle
  module DB
    module MySQL
      # The classes of the servers' errors, by their numbers; all others are {ServerError}. From "Server Error Message
      # Reference" of MySQL's and "MariaDB Error Codes" of MariaDB's documentation.
      #
      # @api private
      ERROR_CLASSES = {
        UniqueViolation => [1062, 1169, 1557, 1586], ForeignKeyViolation => [1216, 1217, 1451, 1452, 1761, 1762],
        NotNullViolation => [1048, 1364, 1566], CheckViolation => [3819, 4025],
        SerializationFailure => [1020], DeadlockDetected => [1213, 1614, 3058, 3132], LockTimeout => [1205, 3572],
        QueryCanceled => [1317, 1969, 3024], ReadOnly => [1290, 1792, 1836, 3989]
      }.flat_map { |error_class, codes| codes.map { |code| [code, error_class] } }.to_h.freeze
      private_constant :ERROR_CLASSES
    end
  end
end
