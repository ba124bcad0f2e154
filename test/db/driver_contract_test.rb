# frozen_string_literal: true

require "test_helper"
require "heddle/db"

# DB::Driver says all that the common part of Heddle::DB knows of a database, and all drivers keep to it.
class DriverContractTest < Minitest::Test
  DB = Heddle::DB
  FOLDER = File.expand_path("../../lib/heddle/db", __dir__)
  CONTRACT = File.read("#{FOLDER}/driver.rb")
  private_constant :DB, :FOLDER, :CONTRACT

  def test_each_driver_has_every_method_of_the_contract
    needed, optional = CONTRACT.split("Not all databases can do what follows").map { |part| declared(part) }
    assert_includes needed, "query_keeping"
    assert_includes optional, "copy_in"
    drivers = (schemes - gems).map { |scheme| driver(scheme) }.uniq
    assert_operator drivers.size, :>=, 2
    drivers.each do |driver|
      assert_includes driver.ancestors, DB::Driver
      assert_empty needed.reject { |name| driver.public_method_defined?(name) }, driver.name
      assert_respond_to driver, :connect
      assert_respond_to driver, :settings
    end
    assert_empty optional.reject { |name| drivers.any? { |driver| driver.public_method_defined?(name) } }
  end

  def test_the_common_part_calls_nothing_else_of_a_driver
    contract = declared(CONTRACT) + DB::Driver.public_instance_methods.map(&:to_s)
    called = common_files.flat_map { |file| code(file).scan(/(?<![\w.])@?driver&?\.([a-z_]+[?!]?)(?!\w)/).flatten }.uniq
    assert_includes called, "begin_transaction"
    # Those of the class, and the writer of an attribute.
    assert_empty called - contract - %w[connect settings respond_to? public_send notices]
  end

  def test_the_common_part_names_no_database
    named = common_files.flat_map do |file|
      code(file).lines.grep(/mysql|mariadb|postgres|sqlite|odbc/i).map { |line| "#{file}: #{line.strip}" }
    end
    assert_empty named
  end

  # They are not compiled where what their gems need is missing.
  def test_drivers_in_gems_of_their_own
    needed = declared(CONTRACT.split("Not all databases can do what follows").first)
    gems.each do |scheme|
      driver = driver(scheme)
      assert_includes driver.ancestors, DB::Driver
      assert_empty needed.reject { |name| driver.public_method_defined?(name) }, driver.name
    end
  rescue LoadError => error
    skip error.message
  end

  def test_every_scheme_has_a_driver
    (schemes - gems).each { |scheme| assert_kind_of Class, driver(scheme) }
    # A file of the folder that is no driver's.
    %w[pool nowhere].each do |scheme|
      error = assert_raises(ArgumentError) { DB.connect("#{scheme}://127.0.0.1/x") }
      assert_match(/no driver for "#{scheme}": the schemes are mysql/, error.message)
    end
  end

  def test_results_of_a_driver_in_ruby
    columns = [DB::Column.new(name: "id", type: :integer), DB::Column.new(name: "name", type: :text)]
    result = DB::Result.new(columns: columns, rows: [[1, "one"]])
    assert_equal %w[id name], result.fields
    assert_equal [{"id" => 1, "name" => "one"}], result.hashes
    assert_equal [:integer, :text], result.columns.map(&:type)
    assert_equal [0, nil, 0, nil], [result.affected_rows, result.last_insert_id, result.warnings, result.following]
    assert_equal result.to_a, Marshal.load(Marshal.dump(result)).to_a

    changed = DB::Result.new(affected_rows: 3, last_insert_id: 7, warnings: 1, following: result)
    refute_predicate changed, :rows?
    assert_empty changed.columns
    assert_empty changed.fields
    assert_equal [3, 7, 1, result],
      [changed.affected_rows, changed.last_insert_id, changed.warnings, changed.following]
  end

  def test_errors_of_a_driver_in_ruby
    error = DB::UniqueViolation.new("twice", code: 19, sql_state: "23505", constraint: "t_id", position: 3)
    assert_equal ["twice", 19, "23505", "t_id", 3],
      [error.message, error.code, error.sql_state, error.constraint, error.position]
    assert_nil error.hint
    assert_equal "a ServerError", DB::ServerError.new("a ServerError").message
  end

  private

  def schemes = DB.const_get(:Databases)::SCHEMES

  def gems = DB.const_get(:Databases)::GEMS.keys

  def driver(scheme) = DB.send(:driver_for, scheme)

  def declared(text) = text.scan(/# @!method (\w+[?=]?)/).flatten

  # All files of the folder itself, without those of schemes and the one place that names databases.
  def common_files
    Dir.glob("#{FOLDER}/*.rb") - [*schemes, "databases"].map { |name| "#{FOLDER}/#{name}.rb" }
  end

  # Without comments.
  def code(file) = File.readlines(file).map { |line| line.sub(/(?:\A|\s)#(?!\{).*/, "") }.join("\n")
end
