# frozen_string_literal: true

require "fileutils"
require "tmpdir"
require "heddle/db"

# What unixODBC knows in the tests: an odbcinst.ini and an odbc.ini in a folder of their own, with Debian's drivers.
module ODBCSources
  # Debian's packages and the files of their drivers.
  DRIVERS = {"SQLite" => ["libsqliteodbc", "libsqlite3odbc.so"], "MariaDB" => ["odbc-mariadb", "libmaodbc.so"],
             "PostgreSQL" => ["odbc-postgresql", "psqlodbcw.so"],
             "PostgreSQL ANSI" => ["odbc-postgresql", "psqlodbca.so"], "FreeTDS" => ["tdsodbc", "libtdsodbc.so"]}.freeze
  FOLDERS = Dir["/usr/lib/*/odbc", "/usr/lib/odbc", "/usr/lib64", "/opt/homebrew/lib"].freeze

  # Why there can be none here.
  class Missing < StandardError; end

  class << self
    # Has unixODBC read the files of this process's folder.
    #
    # @return [String] the folder
    def folder
      @folder ||= Dir.mktmpdir("heddle-odbc").tap do |folder|
        owner = Process.pid
        at_exit { FileUtils.rm_rf(folder) if Process.pid == owner }
        drivers = DRIVERS.keys.filter_map { |name| path_of(name)&.then { |path| "[#{name}]\nDriver = #{path}\n" } }
        File.write("#{folder}/odbcinst.ini", drivers.join("\n"))
        File.write("#{folder}/odbc.ini", "")
        ENV["ODBCSYSINI"] = folder
        ENV["ODBCINI"] = "#{folder}/odbc.ini"
      end
    end

    # Adds a source of data, unless it is there.
    #
    # @param settings [Hash] of the driver
    # @return [String] an address
    # @raise [Missing] without the driver
    def add(name, driver, **settings)
      address = "odbc:DSN=#{name}"
      return address if (@names ||= {})[name]

      require "heddle/db/odbc"
      path_of(driver) || raise(Missing, "the ODBC driver #{driver} is not here: install #{DRIVERS.fetch(driver).first}")
      lines = {Driver: driver, **settings}.map { |key, value| "#{key} = #{value}\n" }
      File.write("#{folder}/odbc.ini", "[#{name}]\n#{lines.join}\n", mode: "a")
      @names[name] = true
      address
    rescue LoadError => error
      raise Missing, error.message
    end

    private

    def path_of(driver)
      FOLDERS.map { |folder| File.join(folder, DRIVERS.fetch(driver).last) }.find { |path| File.exist?(path) }
    end
  end
end
