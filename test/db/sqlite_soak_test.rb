# frozen_string_literal: true

require "test_helper"
require "support/sqlite_helpers"
require "shared/db/soak"

runs_on short: false

# SQLite among interrupts, over a pool of equals and over one writer with its readers; see DatabaseSoak.
class SQLiteSoakTest < Minitest::Test
  include SQLiteHelpers
  include DatabaseSoak

  hard_deadline DatabaseSoak::SECONDS + 60

  def address = "sqlite://#{@path}"

  def pools
    [Heddle::DB::Pool.new(address, size: PLACES, timeout: 20, checkout_timeout: 20, busy_timeout: 10),
      Heddle::DB::SQLite::Pool.new(address, readers: PLACES, timeout: 20, checkout_timeout: 20,
        statement_cache: :always)]
  end

  def endless_sql = ENDLESS

  # By the gem sqlite3 alone.
  def rows = plainly { |db| db.execute("select n from soak").flatten }

  def check_after
    assert_equal [["ok"]], plainly { |db| db.execute("pragma integrity_check") }, context
    queue = @pools.first.with { |db| db.driver.instance_variable_get(:@queue) }
    assert_empty queue.waiting, context
    assert_nil queue.writer, context
    assert_operator open_statements, :<, 100, context
  end

  private

  def plainly
    db = SQLite3::Database.new(@path, readonly: true)
    yield db
  ensure
    db&.close
  end

  def open_statements
    GC.start
    prepared, native = %i[Prepared Database].map { |name| Heddle::DB::SQLite.const_get(name) }
    natives = ObjectSpace.each_object(native).to_a
    ObjectSpace.each_object(prepared).count { |statement| natives.any? { |one| one.owns?(statement) } }
  end
end
