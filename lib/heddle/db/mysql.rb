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
    # MySQL and MariaDB. Packets, parameters and rows are in C (ext/heddle/wire/mysql, ext/heddle/db/mysql).
    #
    # Addresses: <tt>mysql://user:password@host:port/base</tt>, or with the scheme +mariadb+. The port is 3306. Options
    # besides those of {DB.connect}:
    #
    # - +booleans+ (false): whether a TINYINT(1) becomes true or false instead of a number
    # - +found_rows+ (false): whether {Result#affected_rows} of an update counts the rows that it found, also those that
    #   had the new values already
    # - +charset+ ("utf8mb4"): also "utf8", "latin1", "ascii" or "binary"; with "binary" text is passed unchanged as
    #   bytes, both ways
    # - +clear_password+ (false): whether the server may get the password in clear text (PAM, LDAP); over TLS only
    # - +server_public_key+: for caching_sha2_password without TLS the server's RSA key (PEM), or :ask to trust the key
    #   that the server sends
    module MySQL
      # Ruby's encodings, and numbers of a collation, by the server's names.
      #
      # @api private
      CHARSETS =
        {"utf8mb4" => [Encoding::UTF_8, 45], "utf8" => [Encoding::UTF_8, 33], "latin1" => [Encoding::Windows_1252, 8],
         "ascii" => [Encoding::US_ASCII, 11], "binary" => [Encoding::BINARY, 63]}.freeze
      Protocol.load_classes
      private_constant :Protocol, :Login, :SessionState
    end

    register "mysql", MySQL::Driver
  end
end
