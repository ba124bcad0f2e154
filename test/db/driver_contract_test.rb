# frozen_string_literal: true

require "test_helper"
require "heddle/db"

# DB::Driver says all that the common part of Heddle::DB knows of a database, and all drivers keep to it.
class DriverContractTest < Minitest::Test
  DB = Heddle::DB
  FOLDER = File.expand_path("../../lib/heddle/db", __dir__)
  C_FILES = Dir.glob(File.expand_path("../../ext/heddle/db/*.c", __dir__))
  CONTRACT = DB::Driver
  OPTIONAL = CONTRACT.const_get(:Optional)
  # What a database's own files, its cursors and Sequel's adapter call besides.
  BEYOND = {
    "Heddle::DB::MySQL::Driver" => %i[backslash_escapes? fetch local_times= marks stream thread],
    "Heddle::DB::PostgreSQL::Driver" => %i[backslash_escapes? close_cursor fetch process_id stream textual=],
    "Heddle::DB::SQLite::Driver" => %i[fetch stored_values=],
    "Heddle::DB::ODBC::Driver" => %i[fetch]
  }.freeze
  private_constant :DB, :FOLDER, :C_FILES, :CONTRACT, :OPTIONAL, :BEYOND

  def test_drivers
    (schemes - gems).map { |scheme| driver(scheme) }.uniq.each { |driver| assert_keeps_to_contract(driver) }
  end

  def test_drivers_in_gems_of_their_own
    gems.each { |scheme| assert_keeps_to_contract(driver(scheme)) }
  end

  def test_the_common_part_calls_all_of_it_and_nothing_else_of_a_driver
    code = (common_files + C_FILES).map { |file| code(file) }.join
    called = code.scan(/(?<![\w.])@?driver&?\.([a-z_]+[?!]?)(?!\w)/) +
      code.scan(/->driver, rb_intern\("([^"]+)"/) + code.scan(/need_driver\(.*:(\w+)\)/)
    called = called.flatten.uniq - %w[connect settings respond_to? public_send notices]
    contract = declared.map(&:to_s)
    assert_empty called - contract
    # These are called by name, by the drivers, or by those who look into a connection.
    others = %w[copy_in copy_out notices= identifier_quote isolation_level inspect version]
    assert_empty contract - called - others
  end

  def test_the_common_part_names_no_database
    named = common_files.flat_map do |file|
      code(file).lines.grep(/mysql|mariadb|postgres|sqlite|odbc/i).map { |line| "#{file}: #{line.strip}" }
    end
    assert_empty named
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

  def assert_keeps_to_contract(driver)
    assert_operator driver, :<, CONTRACT
    assert_respond_to driver, :connect
    assert_respond_to driver, :settings
    names = driver.public_instance_methods
    required = CONTRACT.const_get(:REQUIRED)
    assert_empty required.select { |name| driver.instance_method(name).owner == CONTRACT }, driver.name
    assert_equal BEYOND.fetch(driver.name), (names - Object.public_instance_methods - declared).sort
    others = (declared & names).reject do |name|
      declaring = [CONTRACT, OPTIONAL].find { |mod| mod.method_defined?(name) }
      signature(driver, name) == signature(declaring, name)
    end
    assert_empty others, driver.name
  end

  def declared = CONTRACT.public_instance_methods + OPTIONAL.public_instance_methods

  # How many arguments, and which keywords.
  def signature(mod, name)
    method = mod.instance_method(name)
    [method.arity, method.parameters.filter_map { |kind, keyword| keyword if kind.start_with?("key") }.sort]
  end

  # All files of the folder itself, without those of schemes and the one place that names databases.
  def common_files
    Dir.glob("#{FOLDER}/*.rb") - [*schemes, "databases"].map { |name| "#{FOLDER}/#{name}.rb" }
  end

  # Without comments.
  def code(file) = File.readlines(file).map { |line| line.sub(/(?:\A|\s)#(?!\{).*/, "") }.join("\n")
end
