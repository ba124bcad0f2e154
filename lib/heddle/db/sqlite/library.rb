# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # Brings the SQLite library of the gem sqlite3 into Heddle. The gem's own connection is used once, to load
      # Heddle's compiled code as an extension: so SQLite hands over its functions (ext/heddle/db/sqlite/api.h).
      #
      # @api private
      module Library
        INSTALL = "Heddle's SQLite driver uses the SQLite library of the gem sqlite3: add gem \"sqlite3\" to the " \
          "Gemfile, or run gem install sqlite3"
        LOCK = Thread::Mutex.new
        private_constant :INSTALL, :LOCK

        class << self
          # @raise [LoadError] without the gem, or with a library that cannot be used
          def load
            return if Database.library

            LOCK.synchronize { attach unless Database.library }
          end

          # Loads Heddle's compiled code into a connection of the gem.
          #
          # @param database [SQLite3::Database]
          # @raise [LoadError, SQLite3::Exception]
          def load_into(database)
            unless database.respond_to?(:enable_load_extension)
              raise LoadError, "this gem sqlite3 was built without extensions, by which Heddle reaches SQLite: " \
                "install the gem that has SQLite compiled in (gem install sqlite3), instead of one for the system's"
            end

            database.enable_load_extension(true)
            database.load_extension(compiled_code)
          end

          private

          def attach
            require_gem
            load_extension
          end

          # Apart from the method that loads the gem: without the gem there is no SQLite3::Exception to rescue.
          def load_extension
            database = ::SQLite3::Database.new(":memory:")
            load_into(database)
            raise LoadError, "this SQLite was built for one thread only: install another gem sqlite3" unless
              Database.threadsafe?
          rescue ::SQLite3::Exception => error
            raise LoadError, "SQLite #{::SQLite3::SQLITE_VERSION} cannot be used (#{error.message}): Heddle needs " \
              "3.38 or later, which gem sqlite3 1.4.3 and later has"
          ensure
            database&.close
          end

          # SQLite finds the entry point by the file's name: sqlite3_heddle_init.
          def compiled_code
            $LOADED_FEATURES.reverse_each.find { |path| path.end_with?("/heddle.#{RbConfig::CONFIG["DLEXT"]}") }
          end

          def require_gem
            require "sqlite3"
          rescue LoadError => error
            raise unless error.path == "sqlite3"

            raise LoadError, INSTALL
          end
        end
      end
      private_constant :Library
    end
  end
end
