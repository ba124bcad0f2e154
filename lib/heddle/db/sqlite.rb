# frozen_string_literal: true

require_relative "common"
require_relative "sqlite/result"
require_relative "sqlite/columns"
require_relative "sqlite/prepared"
require_relative "sqlite/wait_queue"
require_relative "sqlite/waiter"
require_relative "sqlite/error_map"
require_relative "sqlite/statements"
require_relative "sqlite/library"
require_relative "sqlite/location"
require_relative "sqlite/option_checks"
require_relative "sqlite/driver"

module Heddle
  module DB
    # SQLite, which works in this process. The library comes from the gem sqlite3 ({Library}); statements, rows and
    # functions are in C (ext/heddle/db/sqlite).
    #
    # Addresses: <tt>sqlite:///absolute/path</tt>, <tt>sqlite:relative/path</tt> and <tt>sqlite::memory:</tt>. Options
    # besides those of {DB.connect}:
    #
    # - +read_only+ (false); +create+ (true): whether a missing file is made; +immutable+ (false): nobody writes it
    # - +journal_mode+ (:wal), +synchronous+ (:normal), +foreign_keys+ (true), and +pragmas+, a Hash of any others
    # - +busy_timeout+ (5.0): seconds to wait for a locked database; other tasks run meanwhile
    # - +transaction+ (:immediate): how a transaction begins, also :deferred or :exclusive
    # - +extensions+ ([]): paths of extensions to load
    module SQLite
      # A connection of the library. Its methods are in C.
      #
      # @api private
      class Database; end

      Database.load_classes
      private_constant :Database
    end

    register "sqlite", SQLite::Driver
    register "sqlite3", SQLite::Driver
  end
end
