# frozen_string_literal: true

require_relative "common"
require_relative "mysql/columns"
require_relative "mysql/driver"
require_relative "mysql/error_classes"
require_relative "mysql/login"
require_relative "mysql/option_checks"
require_relative "mysql/killer"
require_relative "mysql/session_zone"
require_relative "mysql/session_state"

module Heddle
  module DB
    # MySQL and MariaDB. Packets, parameters and rows are in C (ext/heddle/wire/wire_mysql.c, ext/heddle/mysql).
    module MySQL
      # @api private Ruby's encodings, and numbers of a collation, by the server's names.
      CHARSETS =
        {"utf8mb4" => [Encoding::UTF_8, 45], "utf8" => [Encoding::UTF_8, 33], "latin1" => [Encoding::Windows_1252, 8],
         "ascii" => [Encoding::US_ASCII, 11], "binary" => [Encoding::BINARY, 63]}.freeze
      Link.know_classes
      private_constant :Link, :Login, :SessionState, :SessionZone
    end

    register "mysql", MySQL::Driver
  end
end
