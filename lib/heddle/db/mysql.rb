# frozen_string_literal: true

require "bigdecimal"
require "date"
require_relative "../db"
# All that a connection is made of: nothing is to be loaded by several threads or tasks at once, in the middle of their work.
require_relative "column"
require_relative "connection"
require_relative "duration"
require_relative "pipeline"
require_relative "pool"
require_relative "result"
require_relative "statement"
require_relative "statement_cache"
require_relative "transactions"
require_relative "mysql/columns"
require_relative "mysql/driver"
require_relative "mysql/login"
require_relative "mysql/killer"
require_relative "mysql/session"
require_relative "mysql/session_state"

module Heddle
  module DB
    # MySQL and MariaDB. Packets, parameters and rows are in C (ext/heddle/wire/wire_mysql.c, ext/heddle/mysql).
    module MySQL
      # @api private Ruby's encodings, and numbers of a collation, by the server's names.
      CHARSETS = {"utf8mb4" => [Encoding::UTF_8, 45], "utf8" => [Encoding::UTF_8, 33], "latin1" => [Encoding::Windows_1252, 8],
                  "ascii" => [Encoding::US_ASCII, 11], "binary" => [Encoding::BINARY, 63]}.freeze
      Link.know_classes
      private_constant :Link, :Login, :Session, :SessionState
    end

    register "mysql", MySQL::Driver
  end
end
