# frozen_string_literal: true

require "test_helper"
require "bigdecimal"
require "date"
require "support/stream_helpers"
require "support/sqlite_helpers"

# Values by the declared types of columns, both ways; options of a connection.
class SQLiteTypesTest < Minitest::Test
  include StreamHelpers
  include SQLiteHelpers

  DB = Heddle::DB
  DECLARED = {
    "integer" => [[0, -(1 << 63), (1 << 63) - 1, 1 << 53], :integer],
    "bigint unsigned" => [[7], :integer],
    "real" => [[1.5, -0.0, 1e308, Float::INFINITY], :float],
    "varchar(20)" => [["", "é", "a\0b", "x" * 100_000], :text],
    "blob" => [["", "\xff\x00".b, "abc".b], :bytes],
    "boolean" => [[true, false], :boolean],
    "date" => [[Date.new(2024, 2, 29), Date.new(1, 1, 1), Date.new(9999, 12, 31)], :date],
    "datetime" => [[Time.utc(2024, 2, 29, 23, 59, 59), Time.utc(1969, 12, 31, 1, 2, 3, Rational(456_789, 1)),
      Time.at(1_700_000_000, 123_456_789, :nsec).utc], :datetime],
    "timestamp" => [[Time.utc(2024, 2, 29)], :datetime],
    "time" => [[DB::Duration.parse("23:59:59.5"), DB::Duration.new(0)], :time],
    "decimal(20,4)" => [[BigDecimal("1.5"), BigDecimal("-0.0001"), BigDecimal("12345678901.25"), BigDecimal(7)],
      :decimal],
    "decimal_text" => [[BigDecimal("123456789012345678901234567890.123456789"), BigDecimal("0.1")], :decimal],
    "json" => [["{\"a\": [1]}"], :json]
  }.freeze
  private_constant :DB, :DECLARED

  def test_values_of_each_declared_type
    with_db do |db|
      DECLARED.each do |declared, (values, type)|
        db.query("drop table if exists t")
        db.query("create table t (n integer primary key, v #{declared})")
        values.each { |value| db.exec("insert into t (v) values (?)", value) }
        result = db.query("select v from t order by n")
        assert_equal [type], result.columns.map(&:type), declared
        assert_equal values, result.rows.map(&:first), declared
        assert_equal values.map(&:class), result.rows.map { |row| row.first.class }, declared
        values.each { |value| assert_equal 1, db.query_value("select count(*) from t where v = ?", value), declared }
        strings = values.grep(String)
        assert_equal strings.map(&:encoding), result.rows.flatten.grep(String).map(&:encoding)
        db.exec("insert into t (v) values (null)")
        assert_nil db.query_value("select v from t order by n desc limit 1")
      end
    end
  end

  # SQLite stores any value in any column: a value that does not fit the declared type is returned as stored.
  def test_values_that_do_not_fit_their_declared_type
    with_db do |db|
      db.query("create table t (a boolean, b date, c datetime, d decimal(9,2), e time)")
      odd = [2, "2023-02-29", "yesterday", "a lot", "25:00:00"]
      db.exec("insert into t values (?, ?, ?, ?, ?)", *odd)
      assert_equal odd, db.query_row("select * from t")
      db.exec("update t set a = 'x', b = '2024-01-01 01:02:03', c = 1700000000, d = '1e400', e = '1:2'")
      assert_equal ["x", "2024-01-01 01:02:03", 1_700_000_000, BigDecimal("Infinity"), "1:2"],
        db.query_row("select * from t")
      # The largest integers are no rounded numbers.
      [2**63 - 1, -2**63, 2**62].each do |integer|
        db.exec("update t set d = ?", BigDecimal(integer))
        assert_equal [integer, "integer"], db.query_row("select d, typeof(d) from t")
      end
      # What is read as an infinite decimal can be bound.
      [BigDecimal("Infinity"), -BigDecimal("Infinity")].each do |infinite|
        db.exec("update t set d = ?", infinite)
        assert_equal [infinite, "real"], db.query_row("select d, typeof(d) from t")
      end
    end
  end

  # These were written out, in seconds, and were infinite or zero in columns of numbers.
  def test_decimals_with_large_exponents
    with_db do |db|
      %w[decimal_text decimal decimal(20,4)].each do |type|
        db.query("drop table if exists t")
        db.query("create table t (d #{type})")
        ["1e999999999", "-1.5e-999999999", "9e500", "-9e500", "1.8e308", "1e-324", "1e400"].each do |text|
          assert_within(2) { db.exec("replace into t (rowid, d) values (1, ?)", BigDecimal(text)) }
          assert_equal BigDecimal(text), db.query_value("select d from t")
        end
        ["1.7e308", "-1e300", "1e-300", "0", "-0", "123456789012345"].each do |text|
          db.exec("replace into t (rowid, d) values (1, ?)", BigDecimal(text))
          assert_equal BigDecimal(text), db.query_value("select d from t")
          refute_includes db.query_value("select '' || d from t"), "_"
        end
      end
    end
  end

  def test_forms_of_times
    with_db do |db|
      db.query("create table t (at datetime)")
      {"2024-02-29T01:02:03Z" => Time.utc(2024, 2, 29, 1, 2, 3), "2024-02-29" => Time.utc(2024, 2, 29),
       "2024-02-29 01:02" => Time.utc(2024, 2, 29, 1, 2),
       "2024-02-29 01:02:03+02:30" => Time.utc(2024, 2, 28, 22, 32, 3),
       "2024-02-29 01:02:03.5" => Time.utc(2024, 2, 29, 1, 2, 3.5r)}.each do |text, time|
        db.exec("delete from t")
        db.exec("insert into t values (?)", text)
        assert_equal time, db.query_value("select at from t"), text
      end
      assert_equal "2024-02-29 00:00:00", db.query_value("select ?", Time.new(2024, 2, 29, 2, 0, 0, "+02:00"))
    end
    with_db(time_zone: :local) do |db|
      time = Time.local(2024, 7, 1, 12, 30)
      db.exec("update t set at = ?", time)
      assert_equal [time, "2024-07-01 12:30:00"], db.query_row("select at, at || '' from t")
    end
  end

  def test_strict_tables_and_generated_numbers
    with_db do |db|
      db.query("create table t (id integer primary key, n int not null, b blob) strict")
      result = db.query("insert into t (n) values (?), (?)", 1, 2)
      assert_equal [2, 1], [result.affected_rows, result.last_insert_id]
      assert_equal "42804", assert_raises(DB::ServerError) { db.exec("insert into t (n) values ('x')") }.sql_state
      result = db.query("insert into t (n) values (3) returning id, n")
      assert_equal [[[3, 3]], 1, 3], [result.rows, result.affected_rows, result.last_insert_id]
      result = db.query("update t set n = 9 where id = 1")
      assert_equal [1, nil], [result.affected_rows, result.last_insert_id]
      assert_equal 0, db.exec("create index i on t (n)")
      assert_equal 0, db.query("select * from t").affected_rows
      assert_equal 3, db.exec("delete from t")
    end
  end

  # Another connection changes the table: the cached statement has the new columns.
  def test_statements_of_a_table_that_changes
    with_db(statement_cache: :always) do |db|
      db.query("create table t (a date)")
      db.exec("insert into t values ('2024-01-01')")
      2.times { assert_equal [Date.new(2024, 1, 1)], db.query_row("select * from t") }
      with_db { |other| other.query("alter table t add b boolean default 1") }
      result = db.query("select * from t")
      assert_equal [%w[a b], [[Date.new(2024, 1, 1), true]]], [result.fields, result.rows]
    end
  end

  def test_several_statements_in_one_text
    with_db do |db|
      result = db.query("create table t (n int); insert into t values (1), (2); -- ;\nselect count(*) from t; /* x */")
      assert_equal [[2]], result.rows
      db.query(<<~SQL)
        create trigger after_t after insert on t begin
          update t set n = case when n > 5 then n else n * 10 end;
          delete from t where n > 50;
        end;
        insert into t values (7);
      SQL
      assert_equal [7, 10, 20], db.query_column("select n from t order by n")
      assert_raises(ArgumentError) { db.query("select ?; select 2", 1) }
      error = assert_raises(DB::ServerError) { db.query("select 1; select nope from t") }
      assert_equal 18, error.position
      db.transaction do
        assert_raises(DB::TransactionError) { db.query("insert into t values (1); commit") }
        db.query("select 1; savepoint a; rollback to a; release a")
      end
      assert_equal 3, db.query_value("select count(*) from t")
      db.query("begin; insert into t values (1); commit")
      refute_predicate db, :in_transaction?
      assert_equal [], db.query("-- nothing").rows
      assert_raises(TypeError) { db.query(nil) }
    end
  end

  # Each statement took time for the whole text behind it: these, a minute of CPU time.
  def test_very_many_statements_in_one_text
    with_db do |db|
      db.query("create table t (a text)")
      inserts = "insert into t values ('#{"é;" * 25}');\n" * 20_000
      [inserts, inserts.encode(Encoding::ISO_8859_1)].each do |text|
        assert_operator cpu_time { db.query("delete from t;\n".encode(text.encoding) + text) }, :<, stretched(8)
        assert_equal [20_000, "é;" * 25], db.query_row("select count(*), max(a) from t")
      end
      wrong = "#{inserts.lines.first(50).join}select '\u{1f600}', nope from t"
      assert_equal wrong.index("nope") + 1, assert_raises(DB::ServerError) { db.query(wrong) }.position
      assert_raises(ArgumentError) { db.query("select 1; select '\0'") }
      assert_equal 4, db.query("select 1; select 2 + 2".b).rows.dig(0, 0)
    end
  end

  # A name in double quotes that is no column is not a text.
  def test_misspelled_names_are_errors
    with_db { |db| assert_raises(DB::ServerError) { db.query('select "no such column"') } }
  end

  def test_defaults_and_options_of_a_connection
    with_db do |db|
      assert_equal ["wal", 1, 1],
        %w[journal_mode synchronous foreign_keys].map { |name| db.query_value("pragma #{name}") }
    end
    with_db(journal_mode: :delete, synchronous: "full", foreign_keys: false, pragmas: {cache_size: -500}) do |db|
      assert_equal ["delete", 2, 0, -500],
        %w[journal_mode synchronous foreign_keys cache_size].map { |name| db.query_value("pragma #{name}") }
    end
    with_db("?foreign_keys=off&busy_timeout=2") { |db| assert_equal 0, db.query_value("pragma foreign_keys") }
    {journal_mode: :fast, synchronous: 7, busy_timeout: -1, transaction: :lazy, pragmas: {"a b" => 1}, host: "x",
     extensions: 7, read_only: "perhaps"}.each do |name, value|
      assert_includes assert_raises(ArgumentError, name) { with_db(name => value) { flunk } }.message, name.to_s
    end
  end

  def test_addresses
    with_db { |db| db.query("create table t (n int)") }
    Dir.chdir(@folder) do
      ["sqlite:base.db", "sqlite:./base.db", "sqlite3:base.db", "sqlite:%62ase.db", "SQLITE:base.db"].each do |url|
        Heddle::DB.connect(url, create: false).tap { |db| assert_equal ["t"], db.list_tables }.close
      end
    end
    memory = Heddle::DB.connect("sqlite::memory:")
    assert_equal [1, []], [memory.query_value("select 1"), memory.list_tables]
    memory.close
    ["sqlite://host/base.db", "sqlite:", "sqlite:a%2.db", "sqlite:a#b"].each do |url|
      assert_raises(ArgumentError, url) { Heddle::DB.connect(url) }
    end
  end

  def test_read_only_connections
    with_db { |db| db.query("create table t (n int)") }
    [{read_only: true}, {immutable: true}].each do |options|
      with_db(**options) do |db|
        assert_equal 0, db.query_value("select count(*) from t")
        assert_equal 0, db.transaction { db.query_value("select count(*) from t") }
        assert_raises(DB::ReadOnly) { db.exec("insert into t values (1)") }
      end
    end
    assert_raises(DB::LoginFailed) { Heddle::DB.connect("sqlite://#{@folder}/none.db", read_only: true) }
  end

  # SQL cannot load extensions; the option can.
  def test_sql_cannot_load_extensions
    with_db do |db|
      assert_match(/not authorized/, assert_raises(DB::ServerError) { db.query("select load_extension('x')") }.message)
    end
    error = assert_raises(DB::LoginFailed) { with_db(extensions: "#{@folder}/none.so") { flunk } }
    assert_includes error.message, "none.so"
  end

  private

  def with_db(query = "", **options)
    db = Heddle::DB.connect("sqlite://#{@path}#{query}", **options)
    yield db
  ensure
    db&.close
  end
end
