# frozen_string_literal: true

require "test_helper"
require "shared/sequel"
require "tmpdir"

# Sequel's adapter for SQLite on Heddle::DB.
class SequelSQLiteTest < Minitest::Test
  include SequelSuite

  hard_deadline 60

  def setup
    @folder = Dir.mktmpdir("heddle-sequel-")
    super
  end

  def teardown
    super
    FileUtils.rm_rf(@folder)
  end

  def url = "heddle-sqlite://#{@folder}/base.db"

  # Never ends by itself.
  def slow = Sequel.lit("(with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n)")

  def upsert(dataset) = dataset.insert_conflict(target: :name, update: {number: Sequel[:excluded][:number]})

  def version = @db.sqlite_version

  def test_a_refused_connect
    assert_raises(Sequel::DatabaseConnectionError) { Sequel.connect("heddle-sqlite:///nowhere/base.db") }
    assert_raises(Sequel::DatabaseConnectionError) { connect(journal_mode: "large") }
  end

  def test_ways_to_connect
    path = "#{@folder}/base.db"
    [{adapter: "heddle", database_type: "sqlite", database: path}, {adapter: :"heddle-sqlite", database: path}]
      .each { |way| Sequel.connect(**way, keep_reference: false) { |db| assert_equal 1, db.get(1) } }
    Dir.chdir(@folder) do
      Sequel.connect("heddle-sqlite://base.db", keep_reference: false) { |db| assert_equal @db.tables, db.tables }
    end
    ["heddle-sqlite::memory:", "heddle-sqlite:/", {adapter: "heddle-sqlite"}].each do |memory|
      Sequel.connect(memory, keep_reference: false) do |db|
        items(db).insert(name: "a")
        assert_equal [1], Array.new(3) { Thread.new { db[:items].count } }.map(&:value).uniq
        assert_equal 1, db.pool.max_size
      end
    end
    reads = connect(readonly: true, foreign_keys: false, synchronous: :full, timeout: 7)
    assert_raises(Sequel::DatabaseError) { items(reads) }
    assert_equal [0, 2], [reads["pragma foreign_keys"].single_value, reads["pragma synchronous"].single_value]
    assert_equal "wal", @db["pragma journal_mode"].single_value
  ensure
    reads&.disconnect
  end

  def test_values_are_made_by_declared_types
    @db.run("create table kept (b boolean, i integer, f double precision, d decimal(9, 2), day date, at datetime, " \
      "t time, bytes blob, x text)")
    rows = [["t", "7", 1, 1.5, "2024-02-29", "2024-02-29 12:34:56.5", "12:34:56", "ab", "x"],
      [0, 7, 1.5, "1.25", 2460370, 0, 3661, Sequel.blob("\x00\xff".b), 9]]
    rows.each { |row| @db[:kept].insert(row) }
    first, second = @db[:kept].all.map { |row| row.values }
    assert_equal [true, 7, 1.0, BigDecimal("1.5"), Date.new(2024, 2, 29), Time.local(2024, 2, 29, 12, 34, 56.5)],
      first.first(6)
    assert_equal [false, 7, 1.5, BigDecimal("1.25"), Date.new(2024, 2, 29), Time.at(0)], second.first(6)
    assert_equal %w[12:34:56 01:01:01], [first[6], second[6]].map { |time| time.strftime("%T") }
    assert_equal ["ab", "\x00\xff".b], [first[7], second[7]].each { |blob| assert_instance_of Sequel::SQL::Blob, blob }
    assert_raises(Sequel::InvalidValue) do
      @db[:kept].update(day: "2023-02-30")
      @db[:kept].select(:day).all
    end
    @db.conversion_procs["integer"] = ->(number) { "number #{number}" }
    assert_equal "number 7", @db[:kept].get(:i)
  end

  def test_regexps
    db = connect(setup_regexp_function: true)
    ds = items(db)
    %w[abc ABC xyz].each { |name| ds.insert(name: name) }
    assert_equal [%w[abc], %w[abc ABC], %w[ABC xyz]],
      [ds.where(name: /^a/), ds.where(name: /^a/i), ds.exclude(name: /^a/)].map { |found| found.select_order_map(:id) }
        .map { |ids| ds.where(id: ids).order(:id).select_map(:name) }
    own = connect(setup_regexp_function: ->(pattern, text) { pattern == text.reverse })
    assert_equal ["xyz"], own[:items].where(name: /zyx/).select_map(:name)
    kept = {}
    cached = connect(setup_regexp_function: :cached, regexp_function_cache: -> { kept })
    2.times { assert_equal 2, cached[:items].where(name: /^abc$/i).count }
    assert_equal [Regexp], kept.values.map(&:class)
    assert_equal 1, connect(setup_regexp_function: "cached")[:items].where(name: /^a/).count
  ensure
    [db, own, cached].each { |each| each&.disconnect }
  end

  # A connection of SQLite's is kept: nothing runs on, and nothing is owed.
  def test_an_interrupted_query
    db = connect(max_connections: 1, query_timeout: 0.2)
    items(db)
    before = db.synchronize(&:itself)
    assert_within(AT_ONCE) do
      assert_raises(Heddle::DeadlineExceeded) { db.transaction { db[:items].insert(name: "a") && db.get(slow) } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.run { Heddle.deadline(0.1) { db.get(slow) } } }
      assert_equal 0, db[:items].count
    end
    assert_same before, db.synchronize(&:itself)
  ensure
    db&.disconnect
  end

  # SQLite has rolled the transaction back, and would commit each further statement by itself.
  def test_no_statement_runs_behind_a_transaction_that_sqlite_has_ended
    ds = items
    ds.insert(id: 1, name: "a")
    [-> { Heddle.deadline(0.05) { @db.run("insert into items (number) select * from #{@db.literal(slow)}") } },
      -> { @db.run("insert or rollback into items (id, name) values (1, 'b')") }].each do |write|
      [-> { ds.insert(name: "c") }, -> { ds.stream.each { flunk } }].each do |further|
        error = assert_raises(Sequel::DatabaseError) do
          @db.transaction do
            ds.insert(name: "b")
            assert_raises(Heddle::DeadlineExceeded, Sequel::UniqueConstraintViolation) { write.call }
            further.call
          end
        end
        assert_kind_of Heddle::DB::TransactionError, error.wrapped_exception
      end
      # Its commit says so.
      assert_raises(Sequel::DatabaseError) { @db.transaction { assert_raises(StandardError) { write.call } } }
      assert_equal ["a"], ds.select_map(:name)
    end
    @db.transaction(rollback: :always) { ds.insert(name: "d") }
    @db.transaction { @db.transaction(savepoint: true) { ds.insert(name: "e") } }
    assert_equal %w[a e], ds.select_map(:name)
  end

  # A savepoint would begin a transaction of its own, and its release would commit it.
  def test_no_savepoint_behind_a_transaction_that_sqlite_has_ended
    ds = items
    ds.insert(id: 1, name: "a")
    seen = []
    error = assert_raises(Sequel::DatabaseError) do
      @db.transaction do
        %i[after_commit after_rollback].each { |hook| @db.send(hook) { seen << hook } }
        assert_raises(Sequel::UniqueConstraintViolation) { @db.run("insert or rollback into items (id) values (1)") }
        @db.transaction(savepoint: true) { ds.insert(name: "b") }
      end
    end
    assert_kind_of Heddle::DB::TransactionError, error.wrapped_exception
    assert_equal [["a"], [:after_rollback]], [ds.select_map(:name), seen]
  end

  def test_other_tasks_run_during_a_long_query
    Heddle.run do
      turns = 0
      counter = Heddle.spawn { loop { (turns += 1) && sleep(0.005) } }
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.5) { @db.get(slow) } }
      counter.cancel
      assert_operator turns, :>, 10
    end
  end

  def test_a_locked_database
    ds = items
    other = connect(timeout: 50)
    @db.transaction(mode: :immediate) do
      ds.insert(name: "a")
      error = assert_raises(Sequel::DatabaseLockTimeout) { other[:items].insert(name: "b") }
      assert_kind_of Heddle::DB::LockTimeout, error.wrapped_exception
    end
    other[:items].insert(name: "b")
    assert_raises(Sequel::SerializationFailure) do
      @db.transaction do
        ds.count
        other[:items].insert(name: "c")
        ds.insert(name: "d")
      end
    end
    assert_equal 3, ds.count
  ensure
    other&.disconnect
  end

  def test_tasks_write_in_turn
    ds = items
    Heddle.run do
      writers = Array.new(20) do |n|
        Heddle.spawn { @db.transaction(mode: :immediate) { ds.insert(name: "n#{n}") && sleep(0.001) } }
      end
      writers.each(&:value)
    end
    assert_equal 20, ds.count
  end
end
