# frozen_string_literal: true

require "shared/db"
require "support/both_modes"
require "support/odbc_sources"
require "support/stream_helpers"

# The contract of all databases (test/shared/db) for a source of ODBC.
module ODBCContract
  # Defines the tests of a driver, in threads and in tasks.
  #
  # @param name [String] of the classes
  # @param source [Module] has #address and what the suites need of the database
  # @param exceptions [Hash{Symbol => String}] tests of the contract that this driver cannot pass, each with the reason
  def self.define(name, source, exceptions)
    BothModes.define("ODBC#{name}", StreamHelpers, *DatabaseSuite::ALL, ODBCContract, source) do
      exceptions.each_key { |method| undef_method(method) } # raises for one that does not exist
    end
  end

  def connect(**options) = Heddle::DB.connect(address, timeout: stretched(20), **options)

  # Yields a connection to another source.
  def with(address, **options)
    db = Heddle::DB.connect(address, timeout: stretched(20), **options)
    yield db
  ensure
    db&.close
  end

  def pool(**options) = Heddle::DB::Pool.new(address, timeout: stretched(20), **options)

  # @return [String] the address of a source, see ODBCSources.add
  def source(name, driver, **settings)
    ODBCSources.add(name, driver, **settings)
  end

  # A source of the MariaDB of this process; each set of settings has a source of its own.
  def mariadb_source(**more)
    server = mariadb
    source("mariadb#{more.hash}", "MariaDB", SERVER: server.host, PORT: server.port, DATABASE: server.database,
      UID: server.username, PWD: server.password, **more)
  end

  # The same of the PostgreSQL, with what the guide tells to set: a binary value is a bytea, the driver sets no
  # savepoints of its own, which would undo those of nested transactions, and a number stays a number.
  def postgresql_source(driver = "PostgreSQL", **more)
    server = postgresql
    source("postgresql#{[driver, more].hash}", driver, Servername: server.host, Port: server.port,
      Database: server.database, Username: server.username, Password: server.password, ByteaAsLongVarBinary: 1,
      BoolsAsChar: 0, Protocol: "7.4-0", UseServerSidePrepare: 0, **more)
  end

  def mistyped = [Object.new, [1, 2]]

  def unbindable = [Float::NAN, Float::INFINITY, BigDecimal("NaN"), "\xff", Date.new(12_000, 1, 1)]

  # The driver answers the cancel.
  def assert_interrupted(db) = assert_goes_on(db)
end
