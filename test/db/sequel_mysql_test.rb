# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "shared/sequel"

# Sequel's adapter for MySQL and MariaDB on Heddle::DB.
class SequelMySQLTest < Minitest::Test
  include MariaDBHelpers
  include SequelSuite
  include SequelServerSuite

  hard_deadline 60

  def url = mariadb.url.sub("mysql:", "heddle-mysql:")

  def slow = Sequel.lit("sleep(#{SequelSuite::SECONDS})")

  def upsert(dataset) = dataset.on_duplicate_key_update(:number)

  def test_ways_to_connect
    uri = URI(url)
    options = {host: uri.host, port: uri.port, user: uri.user, password: uri.password, database: uri.path[1..]}
    [{adapter: "heddle", database_type: "mysql"}, {adapter: :"heddle-mysql"},
      {adapter: "heddle-mariadb"}, {adapter: :heddle, database_type: :mariadb}]
      .each { |way| Sequel.connect(**way, **options, keep_reference: false) { |db| assert_equal 1, db.get(1) } }
    Sequel.connect(url.sub("mysql", "mariadb"), keep_reference: false) { |other| assert_equal 1, other.get(1) }
    db = connect(encoding: "latin1", statement_cache_size: 3, sql_mode: "traditional")
    assert_equal "latin1", db.get(Sequel.lit("@@character_set_client"))
    assert_includes db.get(Sequel.lit("@@sql_mode")), "TRADITIONAL"
    assert_raises(Sequel::DatabaseConnectionError) { connect(encoding: "koi8r") }
    assert_raises(Sequel::AdapterNotFound, Sequel::Error) { Sequel.connect(adapter: "heddle", database_type: "db2") }
  ensure
    db&.disconnect
  end

  def test_the_session_keeps_the_time_zone_of_the_server
    assert_equal "SYSTEM", @db.get(Sequel.lit("@@session.time_zone"))
  end

  def test_tinyint_and_bit
    @db.create_table!(:kept) do
      column :flag, "tinyint(1)"
      column :number, "tinyint(4)"
      column :bit, "bit(1)"
      column :bits, "bit(9)"
    end
    @db[:kept].insert(flag: 1, number: 1, bit: 1, bits: 5)
    assert_equal({flag: true, number: 1, bit: true, bits: "\x00\x05".b}, @db[:kept].first)
    numbers = @db[:kept].with_extend { define_method(:convert_tinyint_to_bool?) { false } }
    assert_equal [1, "\x01"], numbers.first.values_at(:flag, :bit)
    @db.convert_tinyint_to_bool = false
    assert_equal({flag: 1, number: 1, bit: "\x01", bits: "\x00\x05".b}, @db[:kept].first)
    assert_equal :integer, @db.schema(:kept, reload: true).to_h[:flag][:type]
  end

  def test_a_time_that_is_no_time_of_a_day
    assert_equal Heddle::DB::Duration.new(-90 * 3600 * 1_000_000), @db.get(Sequel.lit("cast('-90:00:00' as time)"))
  end

  # With NO_BACKSLASH_ESCAPES a backslash that is doubled would be two, and one before a quote would end the string.
  def test_strings_without_backslash_escapes
    text = "\\' or 1=1 -- \\"
    assert_equal text, @db.get(text)
    db = connect(sql_mode: "NO_BACKSLASH_ESCAPES")
    assert_equal text, db.get(text)
    assert_equal "?", db.get("?")
  ensure
    db&.disconnect
  end

  def test_procedures_and_several_results
    @db.run("drop procedure if exists two")
    @db.run("create procedure two(a int) begin select a as x; select a + 1 as x; end")
    assert_equal [{x: 3}, {x: 4}], @db["call two(3)"].all
    assert_equal [5, 6], @db[:two].call_sproc(:select, :two, 5).map { |row| row[:x] }
    assert_equal 7, @db[:two].prepare_sproc(:first, :two).call(7)[:x]
  ensure
    @db.run("drop procedure if exists two")
  end

  # Two transactions that wait for each other, and one that waits too long for the other's lock.
  def test_locks
    items(engine: "InnoDB").import([:name], [["a"], ["b"]])
    other = connect
    other.run("set innodb_lock_wait_timeout = 1")
    @db.transaction do
      @db[:items].where(id: 1).update(number: 1)
      assert_raises(Sequel::DatabaseLockTimeout) { other[:items].where(id: 1).update(number: 2) }
    end
    barrier = Queue.new
    error = assert_raises(Sequel::SerializationFailure) do
      threads = [[@db, 1, 2], [other, 2, 1]].map do |db, first, second|
        Thread.new do
          Thread.current.report_on_exception = false
          db.transaction do
            db.run("set innodb_lock_wait_timeout = 20")
            db[:items].where(id: first).update(number: 3)
            barrier << first
            wait_until(AT_ONCE) { barrier.size == 2 }
            db[:items].where(id: second).update(number: 4)
          end
        end
      end
      threads.each { |thread| thread.join(10) }
    end
    assert_kind_of Heddle::DB::DeadlockDetected, error.wrapped_exception
  ensure
    other&.disconnect
  end

  # A deadlock ends the whole transaction. The server would commit each further statement by itself.
  def test_no_statement_runs_behind_a_transaction_that_a_deadlock_has_ended
    other = connect
    further = {
      insert: ->(ds) { ds.insert(name: "later") }, stream: ->(ds) { ds.stream.each { flunk } },
      bound: ->(ds) { ds.call(:insert, {name: "later"}, {name: :$name}) },
      savepoint: ->(ds) { @db.transaction(savepoint: true) { ds.insert(name: "later") } }, commit: ->(_) {}
    }
    further.each do |way, call|
      items(engine: "InnoDB").import([:name], [["a"], ["b"]])
      seen = []
      error = assert_raises(Sequel::DatabaseError) do
        @db.transaction do
          @db.after_rollback { seen << :after_rollback }
          @db.after_commit { seen << :after_commit }
          @db[:items].where(name: "a").update(number: 3)
          deadlock(other) { @db.transaction(savepoint: true) { @db[:items].where(name: "b").update(number: 3) } }
          call.call(@db[:items])
        end
      end
      assert_kind_of Heddle::DB::TransactionError, error.wrapped_exception, way
      assert_equal [0, [:after_rollback]], [@db[:items].where(name: "later").or(number: 3).count, seen], way
    end
    assert_equal 1, @db.transaction { @db[:items].where(name: "a").update(number: 5) }
  ensure
    other&.disconnect
  end

  # A statement that defines something commits the transaction: with any adapter the block goes on without one.
  def test_a_definition_in_a_transaction
    ds = items(engine: "InnoDB")
    @db.transaction do
      ds.insert(name: "a")
      assert_raises(Sequel::DatabaseError) { @db.run("create table items (x int)") }
      assert_raises(Sequel::UniqueConstraintViolation) { ds.insert(name: "a") }
      ds.insert(name: "b")
    end
    assert_equal %w[a b], ds.select_order_map(:name)
  end

  # As with Sequel's own adapters.
  def test_decimals_without_places_are_integers
    row = @db["select sum(1) a, cast(-2 as decimal(30)) b, sum(1.5) c, cast(3 as decimal(4, 1)) d"].first
    assert_equal [1, -2, BigDecimal("1.5"), 3], row.values
    assert_equal [Integer, Integer, BigDecimal, BigDecimal], row.values.map(&:class)
  end

  private

  # The block waits for a row of the other connection's, which waits for one of ours, and has written more.
  def deadlock(other)
    thread = Thread.new do
      other.transaction do
        other[:items].import([:name], Array.new(30) { |n| ["other #{n}"] })
        other[:items].where(name: "b").update(number: 4)
        other[:items].where(name: "a").update(number: 4)
      end
    end
    watcher = connect
    # information_schema has what it had 0.1 seconds ago; above the list there is the last deadlock.
    list = /^LIST OF TRANSACTIONS.*LOCK WAIT/m
    wait_until(AT_ONCE) { watcher["show engine innodb status"].first[:Status].match?(list) }
    assert_raises(Sequel::SerializationFailure) { yield }
    assert thread.join(AT_ONCE)
  ensure
    watcher&.disconnect
  end

  def ends(db, other)
    id = db.get(Sequel.lit("connection_id()"))
    -> { other.run("kill #{id}") }
  end
end
