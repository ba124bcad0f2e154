# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "set"
require "support/stream_helpers"
require "support/postgresql_server"
require "heddle/db/postgresql"

runs_on also: %i[newer_servers]

# COPY in the binary form, on a real PostgreSQL: values by the types of the columns. All types' random values are in
# postgresql_differential_test.rb.
module PostgreSQLBinaryCopySuite
  include StreamHelpers
  include PostgreSQLHelpers

  DB = Heddle::DB
  PG = DB::PostgreSQL
  # Objects of a class that is registered.
  Coin = Struct.new(:cents, :on_use)
  PG.register_type("int4", encode: {Coin => lambda { |coin|
    coin.on_use&.call
    coin.cents
  }})

  def with_db(**options)
    server = postgresql
    work = lambda do
      db = DB.connect(server.url, timeout: 20, **options)
      yield db
    ensure
      db&.close
    end
    Fiber.scheduler ? work.call : in_host(&work)
  end

  def with_table(columns, **options)
    with_db(**options) do |db|
      db.exec("create temporary table c (#{columns})")
      yield db
    end
  end

  def copy_in(db, *rows, into: "c")
    db.copy_in("copy #{into} from stdin (format binary)") { |copy| rows.each { |row| copy << row } }
  end

  def copied(db, from = "c")
    [].tap { |rows| db.copy_out("copy #{from} to stdout (format binary)") { |row| rows << row } }
  end

  def assert_usable(db) = assert_equal(7, db.query_value("select 7"))

  NOON = Time.utc(2024, 2, 29, 12, 34, 56.789012r)

  # What the text form makes of a value of another class than its column's.
  CONVERTED = {
    "int2" => [-32_768, 7], "int4" => [2**31 - 1, Coin.new(5)], "int8" => [2**63 - 1, -2**63, 3], "oid" => [2**32 - 1],
    "xid8" => [2**64 - 1, 7],
    "float4" => [3, 0.5, -0.0, Float::INFINITY, BigDecimal("0.1")],
    "float8" => [2**53 + 1, 2**70, 1e-320, BigDecimal("1.25"), Float::NAN],
    "numeric" => [2**200, -5, 0.1, 1e300, 1e-7, BigDecimal("-1.50"), BigDecimal("NaN"), Float::INFINITY, "12.5e3"],
    "text" => [1, 2**70, 1.5, 1e300, true, false, :symbol, "ü".encode("ISO-8859-1"), BigDecimal("1.5"), NOON,
      Date.new(2024, 2, 29), [1, nil, "a\"b"], {"a" => 1}, 1..5, IPAddr.new("10.0.0.0/8"), ""],
    "varchar(10)" => ["x", 12], "json" => [{"a" => [1, nil]}, "[1]", 5], "jsonb" => [{"a" => [1, nil]}, "[1]", 5],
    "date" => [NOON, Date.new(-100, 3, 1), DateTime.new(2024, 2, 29, 23, 0, 0), -Float::INFINITY],
    "time" => [DB::Duration.parse("24:00:00"), NOON], "timetz" => [NOON, "01:02:03.5-08:30"],
    "timestamp" => [NOON, Date.new(1500, 1, 1), Float::INFINITY, DateTime.new(2024, 2, 29, 23, 0, 0, "+02:00")],
    "timestamptz" => [NOON, Time.at(-1, 999_999.999r, :usec), Time.new(2024, 1, 1, 0, 0, 0, "+05:30"),
      -Float::INFINITY, DateTime.new(2024, 2, 29, 23, 0, 0, "+02:00"), Time.utc(-4000, 1, 1)],
    "interval" => [DB::Duration.new(-5), PG::Interval.new(1, -2, 3)],
    "inet" => ["10.1.2.3/8", "::1", IPAddr.new("10.0.0.0/8")], "cidr" => [IPAddr.new("10.0.0.0/8"), "fe80::/10"],
    "uuid" => ["{A0EEBC999C0B4EF8BB6D6BB9BD380A11}", :"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "macaddr" => ["08:00:2b:01:02:03"], "bit(3)" => ["101"], "varbit" => [""], "pg_lsn" => ["16/B374D848"],
    "int4[]" => [[], [1, nil], [[1, 2], [3, 4]], Set[1]], "text[]" => [[:a, nil, "NULL", ""]],
    "timestamptz[]" => [[NOON]],
    "int4range" => [1..5, 1...5, 1.., (..7), PG::PGRange.new(1, 9, exclude_begin: true)], "bool" => [true, false],
    "numrange" => [0.5..1, PG::PGRange.new(nil, nil, empty: true)], "tsrange" => [NOON..],
    "point" => [PG::Point.new(1, 2.5)], "path" => [PG::Path.new([PG::Point.new(1, 2)], false)]
  }.freeze

  def test_the_same_values_as_in_the_text_form
    with_db do |db|
      CONVERTED.each do |type, values|
        db.exec("drop table if exists c; create temporary table c (n int, binary_form bool, v #{type})")
        rows = [*values, nil].each_with_index.map { |value, n| [n, value] }
        db.copy_in("copy c from stdin") { |copy| rows.each { |n, value| copy << [n, false, value] } }
        assert_equal rows.size, copy_in(db, *rows.map { |n, value| [n, true, value] })
        texts = db.query("select n, binary_form, format('%s', v) from c").rows.group_by(&:first)
        rows.each do |n, value|
          text, binary = texts[n].sort_by { |row| row[1] ? 1 : 0 }.map(&:last)
          assert_equal text, binary, "#{type}, #{value.inspect}"
        end
        assert_equal db.query("select * from c order by n, binary_form").rows.inspect,
          copied(db, "(select * from c order by n, binary_form)").inspect, type
      end
    end
  end

  def test_columns_that_the_statement_names
    with_db do |db|
      names = "\"S \"\"(1)\" /* from stdin ( */ . \"from\""
      db.exec("create schema \"S \"\"(1)\"; create table #{names} (\"a,b\" int, \"order\" date, N bigint)")
      day = Date.new(2024, 1, 1)
      ["copy #{names} (\"order\", n, \"a,b\") from stdin (format binary)",
        ";copy -- (\n#{names}(\"order\" , N,\"a,b\")from stdin binary",
        "COPY #{names} (\"order\", n, U&\"a\\002cb\") FROM STDIN WITH (FORMAT 'binary') WHERE n > 1"].each do |sql|
        assert_equal(1, db.copy_in(sql) { |copy| copy << [day, 2**40, 7] })
      end
      assert_equal [[7, day, 2**40]] * 3, copied(db, names)
      assert_equal [[2**40]] * 3, copied(db, "#{names} (n)")
      query = "(select \"order\", '?' as x from #{names} where '{}'::jsonb ? 'x' is false limit 1)"
      assert_equal [[day, "?"]], copied(db, query)
    ensure
      db.exec("drop schema if exists \"S \"\"(1)\" cascade")
    end
  end

  # Servers still read this form of before 7.3.
  def test_copy_binary_as_before_7_3
    with_table("n int, d date") do |db|
      row = [7, Date.new(2024, 1, 1)]
      assert_equal(1, db.copy_in("copy binary c from stdin") { |copy| copy << row })
      assert_equal(1, db.copy_in(" COPY Binary c (d) FROM STDIN") { |copy| copy << row.last(1) })
      rows = []
      assert_equal(2, db.copy_out("copy binary c to stdout") { |values| rows << values })
      assert_equal [row, [nil, row.last]], rows
      error = assert_raises(RangeError) { db.copy_in("copy binary c from stdin") { |copy| copy << [2**31, nil] } }
      assert_match(/\Arow 1, column n: /, error.message)
      db.exec("create temporary table \"binary\" (n int)")
      assert_equal(1, db.copy_in("copy \"binary\" from stdin") { |copy| copy << [7] })
    end
  end

  def test_nested_values_without_an_end
    list = []
    10.times { list << list }
    hash = {}
    hash["a"] = hash
    with_table("a int[], j jsonb, f float8") do |db|
      db.copy_in("copy c from stdin binary") do |copy|
        {[list, nil, nil] => /column a: an Array is beyond/, [nil, hash, nil] => /column j: nesting/,
         [nil, nil, 2**100_000] => /column f: a number of 100001 bits is beyond/}.each do |row, message|
          error = assert_raises(StandardError) { copy << row }
          assert_match message, error.message
        end
      end
    end
    with_table("u uuid") do |db|
      error = assert_raises(ArgumentError) { copy_in(db, ["x" * 1000]) }
      assert_operator error.message.size, :<, 500
    end
  end

  def test_generated_columns_are_left_out
    with_table("n int, \"Twice\" int generated always as (n * 2) stored, \"T\" date") do |db|
      row = [3, Date.new(2024, 1, 1)]
      assert_equal 1, copy_in(db, row)
      assert_equal [row], copied(db)
      assert_equal [[6]], copied(db, "(select \"Twice\" from c)")
    end
  end

  def test_strings_that_are_bytes
    with_table("n int, u uuid, j jsonb, t text, b bytea, m money, v tsvector") do |db|
      row = [[7].pack("N"), "\1".b * 16, "\1[2]".b, "\u00fc".b, "\0\xff".b, [125].pack("q>"), [0].pack("N")]
      assert_equal 2, copy_in(db, row, [nil] * 7)
      found = db.query("select n, u::text, j::text, t, b, m, v::text from c").rows
      assert_equal [[7, "01010101-0101-0101-0101-010101010101", "[2]", "\u00fc", "\0\xff".b, BigDecimal("1.25"), ""],
        [nil] * 7], found
      # A String of text goes into a bytea as it is.
      assert_equal 1, copy_in(db, ["\\x00\0"], into: "c (b)")
      assert_equal 1, db.query_value("select count(*) from c where b = '\\x5c78303000'")
    end
  end

  REFUSED = {
    "int2" => [[RangeError, 32_768], [TypeError, 1.0], [TypeError, "1"], [TypeError, Object.new]],
    "int4" => [[RangeError, -2**31 - 1], [TypeError, BigDecimal(1)], [TypeError, true], [TypeError, []]],
    "int8" => [[RangeError, 2**63], [RangeError, -2**80]], "oid" => [[RangeError, -1]], "xid8" => [[RangeError, -1]],
    "float4" => [[RangeError, 1e39], [RangeError, 1e-60], [TypeError, "1"], [TypeError, nil.to_a]],
    "float8" => [[RangeError, 10**400], [TypeError, :x]], "bool" => [[TypeError, 1], [TypeError, "t"]],
    "numeric" => [[ArgumentError, "one"], [TypeError, true]],
    "text" => [[ArgumentError, "a\0b"], [ArgumentError, (+"\xff").force_encoding("EUC-JP")], [TypeError, Object.new]],
    "jsonb" => [[TypeError, Time.now], [ArgumentError, {"a" => Float::NAN}]], "bytea" => [[TypeError, 5]],
    "date" => [[TypeError, "2024-01-01"], [TypeError, 5], [RangeError, Date.new(10_000_000, 1, 1)]],
    "timestamptz" => [[TypeError, Date.new(2024, 1, 1)], [RangeError, Time.utc(300_000)], [TypeError, "now"]],
    "timestamp" => [[RangeError, Time.utc(-5000)], [TypeError, 1.5]],
    "time" => [[RangeError, DB::Duration.new(-1)], [RangeError, DB::Duration.new(86_400_000_001)],
      [TypeError, "12:00"]],
    "timetz" => [[ArgumentError, "noon"]], "interval" => [[TypeError, "1 day"], [RangeError, PG::Interval.new(2**31)]],
    "uuid" => [[ArgumentError, "no uuid"], [TypeError, 7]], "inet" => [[ArgumentError, "10.0.0.0/33"], [TypeError, 1]],
    "bit(3)" => [[ArgumentError, "102"]], "pg_lsn" => [[ArgumentError, "x"]], "point" => [[TypeError, [1, 2]]],
    "int4[]" => [[TypeError, 1], [ArgumentError, [[1], [2, 3]]], [TypeError, ["1"]], [RangeError, [[[[[[[1]]]]]]]],
      [RangeError, [2**31]]],
    "int4range" => [[TypeError, 1], [TypeError, "a".."b"], [RangeError, 1..2**40]], "money" => [[TypeError, 1]],
    "tsvector" => [[TypeError, "a b"]], "int4multirange" => [[TypeError, 1..2], [TypeError, [1]]]
  }.freeze

  def test_values_that_a_type_does_not_take
    with_db do |db|
      REFUSED.each do |type, values|
        db.exec("drop table if exists c; create temporary table c (n int, \"Of type\" #{type})")
        count = db.copy_in("copy c from stdin (format binary)") do |copy|
          copy << [1, nil]
          values.each do |kind, value|
            error = assert_raises(kind, "#{type}, #{value.inspect}") { copy << [2, value] }
            assert_match(/\Arow 2, column Of type: /, error.message)
            assert_instance_of kind, error
          end
          assert_raises(ArgumentError) { copy << [1] }
          copy << [2, nil]
        end
        assert_equal 2, count
      end
      assert_usable(db)
    end
  end

  def test_a_refusal_that_leaves_the_block
    with_table("n int, t text") do |db|
      error = assert_raises(RangeError) { copy_in(db, [1, "a"], [2, "b"], [2**31, "c"]) }
      assert_match(/row 3, column n: 2147483648 is beyond the type int4/, error.message)
      error = assert_raises(TypeError) { db.transaction { copy_in(db, ["1", "a"]) } }
      assert_match(/row 1, column n: a text does not fit the type int4/, error.message)
      assert_nil(db.copy_in("copy c from stdin (format binary)") { |copy| break (copy << [1, "a"]) && nil })
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.05) { db.copy_in("copy c from stdin binary") { |copy| copy << [1, "a"] && sleep } }
      end
      error = assert_raises(DB::ServerError) { copy_in(db, [1, "a"], ["\0\0\0\1\0".b, "b"]) }
      assert_equal "22P03", error.sql_state
      assert_empty db.query("select * from c").rows
      assert_equal 0, copy_in(db)
      assert_equal 50_000, copy_in(db, *Array.new(50_000) { |n| [n, "x" * 20] })
      assert_equal 50_000 * 49_999 / 2, copied(db).sum(&:first)
      assert_usable(db)
    end
  end

  # The look-up of the columns is refused, too.
  def test_statements_that_the_server_refuses
    with_table("n int") do |db|
      ["copy missing from stdin (format binary)", "copy c (m) from stdin binary",
        "copy c from stdin (format binary) where 1"].each do |sql|
        error = assert_raises(DB::ServerError) { db.copy_in(sql) { flunk } }
        assert_equal sql, error.sql
        assert_raises(DB::ServerError) { db.transaction { db.copy_in(sql) { flunk } } }
        assert_raises(DB::TransactionError) do
          db.transaction do
            assert_raises(DB::ServerError) { db.copy_in(sql) { flunk } }
            db.query("select 1")
          end
        end
      end
      error = assert_raises(DB::ServerError) { copied(db, "(select 1 / 0 from c, missing)") }
      assert_equal "42P01", error.sql_state
      assert_usable(db)
    end
  end

  # A COPY may be allowed to who may not read the table.
  def test_a_table_that_may_only_be_written
    with_table("n int, d date") do |db|
      role = "copies_#{Process.pid}_#{object_id}"
      db.exec("create role #{role}; grant insert on c to #{role}; set role #{role}")
      assert_equal 1, copy_in(db, [1, Date.new(2024, 1, 1)])
      db.exec("reset role; drop owned by #{role}; drop role #{role}")
      assert_equal [[1, Date.new(2024, 1, 1)]], copied(db)
    end
  end

  def test_types_that_cannot_be_read
    with_table("n int, m money, a money[], c pg_class, r regclass") do |db|
      copy_in(db, [1, [5].pack("q>"), nil, nil, nil])
      {"m" => "m", "a" => "a", "c" => "c", "r" => "r", "n, m" => "m"}.each do |columns, name|
        error = assert_raises(ArgumentError) { copied(db, "c (#{columns})") }
        assert_match(/the column #{name} is of a type/, error.message)
      end
      assert_equal [[1, "$0.05"]], copied(db, "(select n, m::text from c)")
      pieces = []
      assert_equal(1, db.copy_out("copy c to stdout (format binary)", raw: true) { |bytes| pieces << bytes })
      assert_equal(1, db.copy_in("copy c from stdin binary") { |copy| pieces.each { |bytes| copy.write(bytes) } })
      error = assert_raises(TypeError) { copy_in(db, [1], into: "c (m)") }
      assert_match(/column m: a value of the class Integer does not fit the type money/, error.message)
      assert_usable(db)
    end
  end

  # The servers' own types, and types of this database that nothing has looked up yet.
  def test_types_that_are_looked_up
    with_table("n int") do |db|
      db.exec("create type pg_temp.color as enum ('red', 'gr\u00fcn');" \
        "create domain pg_temp.some as int check (value > 0);" \
        "create type pg_temp.reals as range (subtype = float8);" \
        "create temporary table own (e pg_temp.color, es pg_temp.color[], d pg_temp.some, ds pg_temp.some[], " \
        "r pg_temp.reals[])")
      row = ["red", ["gr\u00fcn", nil], 5, [[1], [2]], [1.5...2.5]]
      db.transaction { assert_equal 1, copy_in(db, [:red, *row.drop(1)], into: "own") }
      assert_equal [row], copied(db, "own")
      assert_raises(DB::CheckViolation) { copy_in(db, ["red", [], 0, [], []], into: "own") }
      assert_raises(DB::ServerError) { copy_in(db, ["blue", [], 1, [], []], into: "own") }
      assert_usable(db)
    end
  end

  # The program's own code runs in the middle of a row, which it changes, and adds another row.
  def test_a_registered_class
    with_table("n int, t text") do |db|
      db.copy_in("copy c from stdin (format binary)") do |copy|
        row = [Coin.new(2, -> { copy << [1, "first"] }), "second"]
        copy << row
        row = [Coin.new(2, -> { row.clear }), "x"]
        copy << row
        error = Class.new(StandardError)
        assert_raises(error) { copy << [Coin.new(3, -> { raise error }), "x"] }
        copy << [3, "third"]
      end
      assert_equal [[1, "first"], [2, "second"], [2, "x"], [3, "third"]], db.query("select * from c order by n, t").rows
      kept = nil
      db.copy_in("copy c from stdin (format binary)") { |copy| kept = copy }
      assert_raises(DB::StatementClosed) { kept << [1, "x"] }
      db.copy_in("copy c from stdin") do |copy|
        row = [Coin.new(2, -> { row.clear }), "x"]
        assert_match(/was changed/, assert_raises(ArgumentError) { copy << row }.message)
      end
    end
  end

  # The connection goes on where the rest of the answer has arrived, as behind a block that leaves copy_out early.
  def test_a_decoder_that_raises
    error = Class.new(StandardError)
    PG.register_type("refused_kind", decode: ->(value) { (value == "good") ? :good : raise(error, value) })
    with_db do |db|
      db.exec("create type pg_temp.refused_kind as enum ('good', 'bad');" \
        "create temporary table c (k pg_temp.refused_kind)")
      copy_in(db, ["good"])
      assert_equal [[:good]], copied(db)
      copy_in(db, ["bad"])
      assert_raises(error) { db.query("select * from c") }
      assert_usable(db)
      assert_raises(error) { copied(db) }
      next if db.closed?

      assert_usable(db)
      db.exec("insert into c select 'bad' from generate_series(1, 50000)")
      assert_raises(error) { copied(db) }
      assert_predicate db, :closed?
    end
  end

  def test_a_local_time_zone
    zone, ENV["TZ"] = ENV["TZ"], "America/New_York"
    with_table("a timestamp, b timestamptz, c time, d date, e timetz", time_zone: :local) do |db|
      time = Time.at(1_709_260_000, 5, :usec)
      2.times { |n| db.copy_in("copy c from stdin#{" binary" if n == 1}") { |copy| copy << [time] * 5 } }
      one, other = db.query("select a::text, b, c, d, e from c").rows
      assert_equal one, other
      assert_equal "2024-02-29 21:26:40.000005", one[0]
      assert_equal [time, time], copied(db, "c (a, b)").last
      assert_equal time.utc_offset, copied(db, "c (a)").last[0].utc_offset
    end
  ensure
    ENV["TZ"] = zone
  end
end

BothModes.define("PostgreSQLBinaryCopy", PostgreSQLBinaryCopySuite)

class PostgreSQLBinaryCopyMemoryTest < Minitest::Test
  include PostgreSQLBinaryCopySuite

  hard_deadline 60

  PostgreSQLBinaryCopySuite.public_instance_methods.grep(/\Atest_/).each { |name| undef_method(name) }

  def in_host = yield

  def test_under_gc
    with_table("n int, t text, d date, a int[], m numeric") do |db|
      rows = Array.new(20) { |n| [n, "text #{n}", Date.new(2024, 1, 1) + n, [n, nil], BigDecimal("#{n}.5")] }
      copy_in(db, rows[0])
      db.exec("truncate c")
      db.copy_in("copy c from stdin (format binary)") { |copy| under_stress { copy << rows[0] } }
      assert_equal [rows[0]], under_stress { copied(db) }
      db.exec("truncate c")
      db.copy_in("copy c from stdin (format binary)") do |copy|
        rows.each { |row| (copy << row) && (compact if row[0] % 8 == 0) }
      end
      assert_equal rows, copied(db)
    end
  end

  def under_stress
    GC.stress = 1 # minor collections, which are quick
    yield
  ensure
    GC.stress = false
  end

  def compact = (GC.compact if GC.respond_to?(:compact))
end
