# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/sqlite_helpers"

# Functions in Ruby that SQL calls, and copies of a database.
class SQLiteFunctionsTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  DB = Heddle::DB
  private_constant :DB

  class Longest
    def step(text) = @longest = [@longest.to_s, text.to_s].max_by(&:size)

    def finish = @longest
  end

  def test_functions
    with_db do |db|
      db.create_function("turned", deterministic: true) { |text| text&.reverse }
      assert_equal ["cba", nil], db.query_row("select turned('abc'), turned(null)")
      db.create_function(:kinds, arity: -1) { |*values| values.map(&:class).join(" ") }
      assert_equal "Integer Float String String NilClass", db.query_value("select kinds(1, 1.5, 'a', x'ff', null)")
      db.create_function("back") { |n| [1 << 62, 2.5, "é", "\xff".b, true, nil, Date.new(2024, 2, 29)][n] }
      assert_equal [[1 << 62], [2.5], ["é"], ["\xff".b], [1], [nil], ["2024-02-29"]],
        db.query("with recursive c (n) as (select 0 union all select n + 1 from c limit 7) select back(n) from c").rows
      db.create_function("turned") { |text| text * 2 } # in place of the other
      assert_equal "abab", db.query_value("select turned('ab')")
      assert_raises(DB::ServerError) { db.query("select turned('a', 'b')") }
      db.query("create table t (a text)")
      db.query("create index i on t (lower(a))")
      assert_raises(DB::ServerError) { db.query("create index j on t (turned(a))") }
      assert_raises(ArgumentError) { db.create_function("x") }
      assert_raises(ArgumentError) { db.create_function("") { nil } }
    end
  end

  def test_aggregates
    with_db do |db|
      db.create_aggregate("longest", Longest)
      rows = "select 'Ann' a, 'lamp' b union all select 'Ann', 'cup' union all select 'Bob', 'chair'"
      assert_equal [["Ann", "lamp"], ["Bob", "chair"]],
        db.query("select a, longest(b) from (#{rows}) group by a order by a").rows
      assert_nil db.query_value("select longest(1) from (select 1 where 0)")
      GC.stress = true
      assert_equal "aaa", db.query_value("select longest(a) from (select 'a' a union all select 'aaa')")
    ensure
      GC.stress = false
    end
  end

  # Otherwise their objects would live as long as the connection.
  def test_aggregate_state_of_interrupted_statements_is_freed
    group = Class.new do
      def step(number) = number == 900 && raise("interrupted")

      def finish = GC.start
    end
    with_db do |db|
      db.create_aggregate("interrupted", group)
      200.times do
        assert_raises(RuntimeError) do
          db.query("with recursive c (n) as (select 1 union all select n + 1 from c limit 1000) " \
            "select interrupted(n), interrupted(-n) from c")
        end
      end
      3.times { GC.start }
      assert_operator ObjectSpace.each_object(group).count, :<, 100
      assert_equal [nil], db.query_row("select interrupted(1)")
    end
  end

  def test_collations
    with_db do |db|
      db.create_collation("by_size") { |one, other| one.size <=> other.size }
      assert_equal %w[a bb ccc], db.query_column("select a from (select 'ccc' a union select 'a' union select 'bb') " \
        "order by a collate by_size")
      db.create_collation("broken") { |_, _| raise "no order" }
      error = assert_raises(RuntimeError) do
        db.query("select a from (select 'ccc' a union select 'a' union select 'bb') order by a collate broken")
      end
      assert_equal ["no order", 1], [error.message, db.query_value("select 1")]
    end
  end

  # Nothing passes through SQLite's frames: the connection is as it was.
  def test_exceptions_in_functions
    with_db do |db|
      db.query("create table t (n int)")
      db.create_function("failing") { |n| (n == 3) ? raise(KeyError, "three") : n }
      failing = Class.new { define_method(:step) { |_| raise IndexError, "step" } && define_method(:finish) { nil } }
      db.create_aggregate("failing_group", failing)
      3.times do
        error = assert_raises(KeyError) do
          db.exec("insert into t select failing(n) from (select 1 n union select 2 union select 3 union select 4)")
        end
        assert_equal "three", error.message
        assert_raises(IndexError) { db.query("select failing_group(1), failing_group(2)") }
        assert_equal 0, db.query_value("select count(*) from t")
      end
      db.create_function("unbindable") { Object.new }
      assert_raises(TypeError) { db.query("select unbindable()") }
      db.create_function("inside") { db.query_value("select 1") }
      assert_raises(DB::Busy) { db.query("select inside()") }
      db.create_function("closing") { db.close }
      assert_raises(DB::ConnectionLost) { db.query("select closing()") }
      assert_predicate db, :closed?
    end
  end

  # SQLite keeps the addresses of functions and of groups that are being aggregated.
  def test_functions_and_aggregates_survive_compaction
    moving = Class.new do
      def step(number) = @sum = @sum.to_i + number

      def finish = @sum.tap { SQLiteFunctionsTest.compact }
    end
    with_db do |db|
      50.times { |i| db.create_function("f#{i}") { |number| number + i } }
      db.create_aggregate("sum_of", moving)
      db.create_collation("backwards") { |a, b| b <=> a }
      self.class.compact
      50.times { |i| assert_equal 1 + i, db.query_value("select f#{i}(1)") }
      db.query("create table t (n int, x text collate backwards)")
      20.times { |n| db.query("insert into t values (?, ?)", n, n.to_s) }
      assert_equal [90, 100], db.query_column("select sum_of(n) from t group by n % 2").sort
      assert_equal "9", db.query_value("select x from t order by x limit 1")
    end
  end

  def self.compact
    room = (RUBY_VERSION < "3.2") ? :double_heap : :expand_heap
    GC.verify_compaction_references(:toward => :empty, room => true)
  rescue NotImplementedError
    GC.start # this system cannot compact
  end

  # An index that was written by a comparison that failed would be out of order.
  def test_a_collation_that_fails_leaves_nothing
    [-> { raise "now" }, -> { Thread.current.raise("now") }, -> { throw :interrupted }].each do |failure|
      File.delete(@path) if File.exist?(@path)
      assert_undone { |db| catch(:interrupted) { assert_raises(RuntimeError) { insert_amid(db, failure) } } }
      assert_undone do |db|
        assert_raises(DB::TransactionError) do
          db.transaction do
            db.query("insert into t values ('0045')")
            catch(:interrupted) { assert_raises(RuntimeError) { insert_amid(db, failure) } }
            refute_predicate db, :in_transaction?
          end
        end
      end
    end
  end

  def test_a_close_in_a_collation_leaves_nothing
    assert_undone { |db| assert_raises(DB::ConnectionLost) { insert_amid(db, -> { db.close }) } }
  end

  # A function of one task waits, and a function of another one runs meanwhile.
  def test_functions_that_wait
    Heddle.run do
      queue = Thread::Queue.new
      tasks = [-> { queue.pop }, -> { queue.push(7) && 8 }].map do |work|
        Heddle.spawn do
          with_db do |db|
            db.create_function("work", arity: 0, &work)
            db.query_value("select work()")
          end
        end
      end
      assert_equal [7, 8], tasks.map(&:value)
    end
  end

  def test_functions_on_each_connection_of_a_pool
    pool = DB::Pool.new("sqlite://#{@path}", size: 2, init: ->(db) { db.create_function("seven") { 7 } })
    both = pool.with { |one| pool.with { |two| [one, two].map { |db| db.query_value("select seven()") } } }
    assert_equal [7, 7], both
    pool.with { |db| db.create_function("mine") { 1 } }
    assert_raises(DB::ServerError) { pool.query("select mine()") } # of an earlier user
    assert_equal 7, pool.query_value("select seven()")
    pool.close
  end

  def test_a_backup_beside_writers
    Heddle.run do
      with_db do |db|
        db.query("create table t (n integer primary key, b blob)")
        db.exec("insert into t (b) with recursive c (n) as (select 1 union all select n + 1 from c limit 2000) " \
          "select randomblob(1000) from c")
        copy = File.join(@folder, "copy.db")
        seen = []
        turns = 0
        other = Heddle.spawn { 10.times { (turns += 1) && sleep(0.001) } }
        db.backup(copy, pages: 16) { |done, all| seen << [done, all] }
        other.value
        assert_operator seen.size, :>, 10
        assert_equal seen.map(&:first), seen.map(&:first).sort
        assert_equal seen.last[1], seen.last[0]
        with_db(copy) { |copied| assert_equal ["ok", 2000], backup_of(copied) }
        # An interrupted one leaves what was there.
        db.exec("delete from t where n > 10")
        assert_raises(RuntimeError) { db.backup(copy, pages: 1) { raise "enough" } }
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.02) { db.backup(copy, pages: 1) { sleep(0.01) } } }
        with_db(copy) { |copied| assert_equal ["ok", 2000], backup_of(copied) }
        db.backup(copy)
        with_db(copy) { |copied| assert_equal ["ok", 10], backup_of(copied) }
        assert_raises(ArgumentError) { db.backup(@path) }
        assert_raises(ArgumentError) { db.backup(copy, pages: 0) }
        assert_raises(DB::ServerError) { db.backup("#{@folder}/nowhere/copy.db") }
        assert_equal 10, db.query_value("select count(*) from t")
      end
    end
  end

  # A copy that began again with each of their commits would never come to its end.
  def test_a_backup_while_others_write
    Heddle.run do
      with_db do |db|
        db.query("create table t (n integer primary key, b blob)")
        db.exec("insert into t (b) with recursive c (n) as (select 1 union all select n + 1 from c limit 300) " \
          "select randomblob(3000) from c")
        copy = File.join(@folder, "copy.db")
        with_db do |writer|
          numbers = []
          Heddle.deadline(20) do
            db.backup(copy, pages: 1) do |done, _|
              numbers << done
              writer.exec("insert into t (b) values (randomblob(10))")
            end
          end
          assert_equal numbers.sort, numbers
          with_db(copy) { |copied| assert_equal ["ok", 300], backup_of(copied) }
          assert_equal 300 + numbers.size, writer.query_value("select count(*) from t")
          assert_equal 0, writer.query_row("pragma wal_checkpoint(truncate)").first # the copy holds nothing up any more
        end
      end
    end
  end

  def test_a_backup_of_a_locked_database_and_in_a_transaction
    with_db do |db|
      db.query("pragma journal_mode = delete; create table t (n int)")
      copy = File.join(@folder, "copy.db")
      assert_within(3) do
        assert_raises(DB::TransactionError) { db.transaction { db.backup(copy) } }
      end
      refute_predicate db, :in_transaction?
      db.transaction(read_only: true) { db.backup(copy) }
      other = DB.connect("sqlite://#{@path}", transaction: :exclusive, journal_mode: :delete)
      other.start_transaction
      db.query("pragma busy_timeout = 50")
      error = assert_raises(DB::LockTimeout) { db.backup(copy) }
      assert_match(/#{Regexp.escape(@path)}: held by a transaction of this process/, error.message)
      other.close
      db.backup(copy)
      with_db(copy) { |copied| assert_equal ["ok", 0], backup_of(copied) }
    end
  end

  def test_a_backup_of_a_database_in_memory
    memory = DB.connect("sqlite::memory:")
    memory.query("create table t (n int); insert into t values (7)")
    memory.backup(@path)
    with_db { |db| assert_equal 7, db.query_value("select n from t") }
  ensure
    memory&.close
  end

  private

  # Inserts a row, in the middle of which the failure comes.
  def insert_amid(db, failure)
    @failure = failure
    db.query("insert into t values ('0055')")
  ensure
    @failure = nil
  end

  # The block's rows are not there, and the index is sound.
  def assert_undone
    order = lambda do |a, b|
      @failure&.call
      a <=> b
    end
    with_db do |db|
      db.create_collation("own", &order)
      db.query("create table if not exists t (x text collate own)")
      db.query("create index if not exists i on t (x)")
      db.query("delete from t")
      10.times { |n| db.query("insert into t values (?)", format("%03d", n)) }
      yield db
    end
    with_db do |db|
      db.create_collation("own", &order)
      assert_equal ["ok", 10], backup_of(db)
    end
  end

  def with_db(path = @path)
    db = DB.connect("sqlite://#{path}")
    yield db
  ensure
    db&.close
  end

  def backup_of(db) = [db.query_value("pragma integrity_check"), db.query_value("select count(*) from t")]
end
