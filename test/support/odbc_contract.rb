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

  def connect(**options) = Heddle::DB.connect(address, timeout: 20, **options)

  def pool(**options) = Heddle::DB::Pool.new(address, timeout: 20, **options)

  # @return [String] the address of a source, see ODBCSources.add
  def source(name, driver, **settings)
    ODBCSources.add(name, driver, **settings)
  rescue ODBCSources::Missing => error
    skip error.message
  end

  def mistyped = [Object.new, [1, 2]]

  def unbindable = [Float::NAN, Float::INFINITY, BigDecimal("NaN"), "\xff", Date.new(12_000, 1, 1)]

  # The driver answers the cancel.
  def assert_interrupted(db) = assert_goes_on(db)
end
