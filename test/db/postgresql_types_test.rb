# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "heddle/db/postgresql"
require "set"

runs_on also: %i[newer_servers]

# Each type of PostgreSQL, both ways.
class PostgreSQLTypesTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  DB = Heddle::DB
  PG = DB::PostgreSQL

  # Types that a database has of its own.
  SETUP = <<~SQL.split(";\n")
    create extension hstore;
    create extension ltree;
    create extension citext;
    create extension cube;
    create type color as enum ('red', 'grün');
    create domain positive as int check (value > 0);
    create domain dyed as color;
    create type pair as (a int, b color, c text[], d positive);
    create type floats as range (subtype = float8);
  SQL

  # One database for all tests of a process: making its types takes longer than most tests.
  def self.database(server)
    @database ||= "types_#{Process.pid}".tap do |name|
      DB.connect(server.url, timeout: 20).tap { |db| db.exec("create database #{name}") }.close
      db = DB.connect(server.url, database: name, timeout: 20)
      SETUP.each { |sql| db.exec(sql.delete_suffix(";")) }
      db.close
    end
  end

  def setup
    @server = postgresql
    @database = PostgreSQLTypesTest.database(@server)
    @db = connect
  end

  def teardown
    @db&.close
    @others&.each(&:close)
  end

  def connect(**options)
    DB.connect(@server.url, database: @database, timeout: 20, **options).tap { |db| (@others ||= []) << db }
  end

  def value(sql, *arguments) = @db.query_value("select #{sql}", *arguments)

  POINT = PG::Point.new(1.0, 2.5)
  OTHER = PG::Point.new(-3.0, 4.0)

  LITERALS = {
    "true" => [:boolean, true],
    "1::int2" => [:integer, 1], "-5" => [:integer, -5], "9223372036854775807" => [:integer, 2**63 - 1],
    "4294967295::oid" => [:integer, 2**32 - 1], "'18446744073709551615'::xid8" => [:integer, 2**64 - 1],
    "1.1::float4" => [:float, 1.1], "1e300::float8" => [:float, 1e300],
    "'-infinity'::float8" => [:float, -Float::INFINITY],
    "12.50" => [:decimal, BigDecimal("12.5")], "'-infinity'::numeric" => [:decimal, -BigDecimal("Infinity")],
    "-0.000123::numeric" => [:decimal, BigDecimal("-0.000123")], "1e200::numeric" => [:decimal, BigDecimal("1e200")],
    "'1234.56'::money" => [:decimal, BigDecimal("1234.56")],
    "'x'::text" => [:text, "x"], "'x'::\"char\"" => [:text, "x"], "'ab'::char(4)" => [:text, "ab  "],
    "'a'::name" => [:text, "a"], "'<a>é</a>'::xml" => [:text, "<a>é</a>"],
    "'\\x00ff'::bytea" => [:bytes, "\x00\xff".b],
    "'2024-02-29'::date" => [:date, Date.new(2024, 2, 29)], "'infinity'::date" => [:date, Float::INFINITY],
    "'-infinity'::date" => [:date, -Float::INFINITY],
    "'1500-01-01'::date" => [:date, Date.new(1500, 1, 1)],
    "'0044-03-15 BC'::date" => [:date, Date.new(-43, 3, 15)],
    "'12:34:56.5'::time" => [:time, DB::Duration.parse("12:34:56.5")],
    "'24:00'::time" => [:time, DB::Duration.parse("24:00:00")],
    "'12:34:56.5+02:30'::timetz" => [:text, "12:34:56.5+02:30"], "'01:00-08'::timetz" => [:text, "01:00:00-08"],
    "'2024-01-02 03:04:05.123456'::timestamp" => [:datetime, Time.utc(2024, 1, 2, 3, 4, 5, 123_456)],
    "'1066-10-14 12:00:00.5+02'::timestamptz" => [:datetime, Time.utc(1066, 10, 14, 10, 0, 0, 500_000)],
    "'infinity'::timestamptz" => [:datetime, Float::INFINITY],
    "'-infinity'::timestamp" => [:datetime, -Float::INFINITY],
    "'1 year 2 mons -3 days 04:05:06.7'::interval" => [:interval, PG::Interval.new(14, -3, 14_706_700_000)],
    "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid" => [:uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "'{\"a\": 1}'::json" => [:json, '{"a": 1}'], "'{\"a\":1}'::jsonb" => [:json, '{"a": 1}'],
    "'$.a'::jsonpath" => [:text, '$."a"'],
    "'10.0.0.0/8'::cidr" => [:inet, IPAddr.new("10.0.0.0/8")], "'::1'::inet" => [:inet, IPAddr.new("::1")],
    "'08:00:2b:01:02:03'::macaddr" => [:text, "08:00:2b:01:02:03"],
    "'08:00:2b:01:02:03:04:05'::macaddr8" => [:text, "08:00:2b:01:02:03:04:05"],
    "'(1,2.5)'::point" => [:geometry, POINT], "'{1,2,3}'::line" => [:geometry, PG::Line.new(1.0, 2.0, 3.0)],
    "'[(1,2.5),(-3,4)]'::lseg" => [:geometry, PG::LineSegment.new(POINT, OTHER)],
    "'(1,2),(3,4)'::box" => [:geometry, PG::Box.new(PG::Point.new(3.0, 4.0), PG::Point.new(1.0, 2.0))],
    "'[(1,2.5),(-3,4)]'::path" => [:geometry, PG::Path.new([POINT, OTHER], false)],
    "'((1,2.5))'::path" => [:geometry, PG::Path.new([POINT], true)],
    "'((1,2.5),(-3,4))'::polygon" => [:geometry, PG::Polygon.new([POINT, OTHER])],
    "'<(1,2.5),3>'::circle" => [:geometry, PG::Circle.new(POINT, 3.0)],
    "B'10110'" => [:bits, "10110"], "''::varbit" => [:bits, ""],
    "array[1,2,null]" => [:array, [1, 2, nil]], "'{}'::int[]" => [:array, []],
    "array[['a','b'],['c',null]]" => [:array, [["a", "b"], ["c", nil]]],
    "'[2:3]={1.5,2}'::numeric[]" => [:array, [BigDecimal("1.5"), 2]], "'1 2 3'::int2vector" => [:array, [1, 2, 3]],
    "array['1.00'::money, '2']" => [:array, [1, 2]],
    "'[1,5]'::int4range" => [:range, 1...6], "'[1,5]'::numrange" => [:range, BigDecimal(1)..BigDecimal(5)],
    "'(,5)'::int8range" => [:range, nil...5], "'(,)'::tsrange" => [:range, nil...nil],
    "'[2024-01-01,)'::daterange" => [:range, Date.new(2024, 1, 1)...nil],
    "'(1.5,2]'::numrange" => [:range, PG::PGRange.new(BigDecimal("1.5"), 2, exclude_begin: true)],
    "'empty'::int4range" => [:range, PG::PGRange.new(nil, nil, exclude_end: true, empty: true)],
    "'[2024-01-01,infinity]'::tsrange" => [:range, PG::PGRange.new(Time.utc(2024), Float::INFINITY)],
    "'{[1,3),[5,6)}'::int4multirange" => [:multirange, [1...3, 5...6]],
    "row(1,'a',null)" => [:composite, [1, "a", nil]],
    "'a:1A fat:2,3B cat'::tsvector" => [:text, "'a':1A 'cat' 'fat':2,3B"],
    "'it''s'::tsvector" => [:text, "'it''s'"],
    "'16/B374D848'::pg_lsn" => [:text, "16/B374D848"], "pg_sleep(0)" => [:null, nil]
  }.freeze

  def test_each_of_the_servers_own_types
    LITERALS.each do |sql, (type, expected)|
      result = @db.query("select #{sql}")
      expected.nil? ? assert_nil(result[0][0], sql) : assert_equal(expected, result[0][0], sql)
      assert_equal expected.class, result[0][0].class, sql
      assert_equal type, result.columns[0].type, sql
      text = result[0][0]
      assert_equal Encoding::UTF_8, text.encoding, sql if text.is_a?(String) && type != :bytes
    end
    assert_predicate value("'NaN'::numeric"), :nan?
    assert_predicate value("'NaN'::float4"), :nan?
  end

  # Of one in the middle between two singles it is not known which is meant.
  def test_digits_of_singles
    %w[57081288 -66453758000 -123356224476979 16777216 0.1 3.4028235e38 1e-45 8388609.5].each do |text|
      read = @db.query_value("select '#{text}'::real")
      assert_equal Float(@db.query_value("select '#{text}'::real::text")), read, text
      assert_equal @db.query("select 1; select '#{text}'::real").following[0][0], read, text
    end
  end

  # The server does not read the binary form that it writes of the one, and that of the other is a NUL.
  def test_a_query_without_words_and_an_empty_char
    sql = "select to_tsquery('the'), array[''::tsquery, 'a'], ''::\"char\", array['', 'a']::\"char\"[]"
    expected = ["", ["", "'a'"], "", ["", "a"]]
    assert_equal expected, @db.query_row(sql)
    assert_equal expected, @db.transaction { [@db.query_row(sql), @db.query_value("select 1")] }.first
    bound = 'select ?::tsquery, ?::tsquery[], ?::"char", ?::"char"[]'
    assert_equal expected, @db.query_row(bound, *expected)
  end

  def test_an_inet_keeps_the_bits_behind_its_network
    address = value("'192.168.1.5/24'::inet")
    assert_equal ["192.168.1.5", 24], [address.to_s, address.prefix]
    assert_includes address, IPAddr.new("192.168.1.77")
    assert_equal "192.168.1.5/24", value("?::inet::text", address)
    six = value("'fe80::1/64'::inet")
    assert_equal ["fe80::1", 64], [six.to_s, six.prefix]
    assert_equal "fe80::1/64", value("?::inet::text", six)
  end

  OWN = {
    "'red'::color" => [:enum, "red"], "array['red', 'grün']::color[]" => [:array, %w[red grün]],
    "5::positive" => [:integer, 5], "'grün'::dyed" => [:enum, "grün"], "array[5]::positive[]" => [:array, [5]],
    "array['red']::dyed[]" => [:array, ["red"]],
    "row(1, 'red', array['x'], 5)::pair" => [:composite, {"a" => 1, "b" => "red", "c" => ["x"], "d" => 5}],
    "array[row(1, null, null, null)::pair]" => [:array, [{"a" => 1, "b" => nil, "c" => nil, "d" => nil}]],
    "row('red'::color, row(3, 'grün'::dyed))" => [:composite, ["red", [3, "grün"]]],
    "'a=>1, b=>null'::hstore" => [:hstore, {"a" => "1", "b" => nil}], "'a.b'::ltree" => [:text, "a.b"],
    "'X'::citext" => [:text, "X"], "'[1.5,2)'::floats" => [:range, 1.5...2.0],
    # Binary forms that are not public: the server is asked for its text.
    "'(1,2),(3,4)'::cube" => [:text, "(1, 2),(3, 4)"], "'fat & cat'::tsquery" => [:text, "'fat' & 'cat'"],
    "array['pg_class', 'pg_type']::regclass[]" => [:array, %w[pg_class pg_type]], "'(0,1)'::tid" => [:text, "(0,1)"]
  }.freeze

  def test_types_that_the_database_has_of_its_own
    OWN.each do |sql, (type, expected)|
      2.times do
        result = @db.query("select #{sql}")
        assert_equal expected, result[0][0], sql
        assert_equal type, result.columns[0].type, sql
      end
    end
    assert_equal OWN.values.map(&:last), connect.query_row("select #{OWN.keys.join(", ")}")
  end

  def test_types_are_looked_up_once
    db = connect
    looked_up = []
    protocol = db.driver.instance_variable_get(:@protocol)
    protocol.define_singleton_method(:unknown_types) { super().tap { |oids| looked_up << oids unless oids.empty? } }
    3.times { assert_equal "red", db.query_value("select 'red'::color") }
    assert_equal 1, looked_up.size
  end

  def test_a_result_without_rows_and_parameters_have_their_types
    assert_equal [:enum], @db.query("select 'red'::color where false").columns.map(&:type)
    statement = @db.prepare("select 1 where ?::color = 'red' and ?::dyed is null and ?::pair is null")
    assert_equal %i[enum enum composite], statement.parameter_types
  end

  def test_in_a_transaction_and_a_cursor
    db = connect
    db.transaction do
      rows = db.each_row("select n, case n when 2 then 'red'::color end from generate_series(1, 3) n", fetch: 1).to_a
      assert_equal [[1, nil], [2, "red"], [3, nil]], rows
    end
    other = connect
    assert_equal [["red"]] * 3, other.each_row("select 'red'::color from generate_series(1, 3)", fetch: 2).to_a
  end

  def test_in_a_pipeline
    db = connect
    futures = db.pipeline { |p| %w[red grün].map { |name| p.query("select ?::color, 'x'::dyed[]", name) } }
    assert_raises(DB::ServerError) { futures[0].value } # 'x' is no array
    db = connect
    futures = db.pipeline { |p| %w[red grün].map { |name| p.query("select ?::color, array[?::dyed]", name, name) } }
    assert_equal [["red", ["red"]], ["grün", ["grün"]]], futures.map { |future| future.value[0] }
  end

  def test_a_type_that_another_connection_changes
    @db.exec("create type changing as (a int)")
    assert_equal({"a" => 1}, value("row(1)::changing"))
    connect.exec("alter type changing add attribute e text")
    assert_equal({"a" => 1, "e" => "x"}, value("row(1, 'x')::changing"))
  end

  def test_kept_statements_read_types_that_were_unknown_at_first
    db = connect(statement_cache: :always)
    3.times { assert_equal ["red", ["grün"]], db.query_row("select ?::color, array[?]::color[]", "red", "grün") }
  end

  def test_many_rows_of_a_type_without_a_public_form
    rows = @db.query("select '(0,1)'::tid, n::int, ('pg_' || case n % 2 when 0 then 'type' else 'class' end)" \
      "::regclass from generate_series(1, 2500) n").rows
    assert_equal 2500, rows.size
    assert_equal ["(0,1)", 2500, "pg_type"], rows.last
  end

  def test_more_columns_than_are_gathered_at_once
    row = @db.query_row("select #{(1..150).map { |n| (n % 3 == 0) ? "'red'::color" : n.to_s }.join(", ")}")
    assert_equal (1..150).map { |n| (n % 3 == 0) ? "red" : n }, row
  end

  def test_a_type_without_a_binary_form
    error = assert_raises(DB::ServerError) { @db.query("select relacl from pg_class where relname = 'pg_class'") }
    assert_match(/cast the column to text/, error.hint)
    assert_kind_of Array, value("relacl::text[] from pg_class where relname = 'pg_class'")
  end

  def test_a_transaction_that_failed_before_its_types_were_known
    db = connect
    db.start_transaction
    protocol = db.driver.instance_variable_get(:@protocol)
    protocol.send_new("select 'red'::color", [])
    protocol.send_new("select 1 / 0", [])
    protocol.receive
    error = assert_raises(DB::TransactionError) { protocol.receive }
    assert_match(/cannot be looked up: a later statement of the transaction failed/, error.message)
    db.rollback
    assert_equal "red", db.query_value("select 'red'::color")
  end

  # The server of these tests has no pgvector: its public binary form is read as one.
  def test_a_vector
    protocol = @db.driver.instance_variable_get(:@protocol)
    protocol.know_type(17, DB::PostgreSQL.send(:const_get, :Protocol)::KINDS[:VECTOR], 0, nil, nil)
    result = @db.query("select '\\x000200003f80000040200000'::bytea")
    assert_equal [1.0, 2.5], result[0][0]
    assert_equal :vector, result.columns[0].type
  end

  def test_the_text_that_a_simple_query_returns
    @db.driver.send(:command, "set timezone = 'UTC'")
    sql = "select 1, true, 1.5, 1.5::float8, 'x', '\\x00ff'::bytea, '2024-02-29'::date, '0044-03-15 BC'::date, " \
      "'2024-01-02 03:04:05.1'::timestamp, '2024-01-02 03:04:05+02'::timestamptz, 'infinity'::date, null"
    assert_equal @db.query(sql)[0], @db.driver.command(sql)[0]
  end

  # A simple Query gives texts, of which some go back to the server to become values.
  def test_values_of_several_statements_in_one_text
    @db.query("set timezone = 'UTC'")
    list = (LITERALS.keys - ["row(1,'a',null)"] + OWN.keys - ["row('red'::color, row(3, 'grün'::dyed))"]).join(", ")
    result = @db.query("select #{list}; select array[1], null::int[] union all select array[2, 1], null")
    assert_equal @db.query_row("select #{list}"), result[0]
    assert_equal [[[1], nil], [[2, 1], nil]], result.following.rows
    assert_equal ["(1,a,)"], @db.query("select row(1,'a',null); select 1")[0]
    many = @db.query("select '12:00'::time + n * interval '1 second', array[n] from generate_series(1, 700) as n; " \
      "select 1")
    assert_equal [DB::Duration.parse("12:11:40"), [700]], many[699]
    @db.transaction { assert_equal [[1]], @db.query("select array[1]; select 2")[0] }
  end

  # The session says how values look as text.
  def test_values_of_several_statements_whatever_the_session_says
    bytes = (0..255).map(&:chr).join.b
    sql = "select ?::bytea, date '2024-02-29', timestamp '2024-02-29 01:02:03.5', timestamptz '2024-02-29 12:00:00+00'"
    @db.exec("create temporary table t as #{sql}", bytes)
    ["set bytea_output = 'escape'", "set datestyle = 'SQL, DMY'", "set datestyle = 'Postgres, MDY'",
      "set datestyle = 'German'"].each do |setting|
      @db.query(setting)
      row = @db.query("select 1; select * from t").following[0]
      assert_equal @db.query_row("select * from t"), row, setting
      assert_equal bytes, row[0]
    end
  end

  # ---- parameters

  BOUND = {
    "int" => [1, -5, nil], "int8" => [2**40], "numeric" => [2**70, BigDecimal("1.5"), BigDecimal("-Infinity")],
    "float8" => [1.5, -0.0, Float::INFINITY], "text" => ["x", "é", :symbol], "bytea" => ["\x00\xff".b],
    "date" => [Date.new(2024, 2, 29), Date.new(1500, 1, 1), Date.new(-43, 3, 15), Date.new(1, 1, 1)],
    "timestamptz" => [Time.utc(2024, 1, 2, 3, 4, 5, 6), Time.utc(-44, 3, 15)], "timestamp" => [Time.utc(2024, 1, 2)],
    "interval" => [PG::Interval.new(14, -3, -5), PG::Interval.new(0, 0, 36_000_000_001)],
    "int[]" => [[1, nil, 3], [[1, 2], [3, 4]], []], "int8[]" => [[1, 2**40]],
    "text[]" => [["a,b", "\"\\", "", "NULL", nil]],
    "float8[]" => [[1.5, 2.0, -Float::INFINITY]], "bool[]" => [[true, false]], "bytea[]" => [["\\\"\x00".b]],
    "numeric[]" => [[2**70, BigDecimal("1.5")]],
    "timestamptz[]" => [[Time.utc(2024), nil]], "date[]" => [[Date.new(2024), Date.new(1500, 3, 1)]],
    "int4range" => [1...5, nil...5], "numrange" => [BigDecimal("1.5")..BigDecimal(2)], "int4range[]" => [[1...5]],
    "tstzrange" => [Time.utc(2024)...Time.utc(2025)], "int4multirange" => [[1...3, 5...6], []],
    "int4multirange[]" => [[[1...3, 5...6], []]], "hstore" => [{"a" => "1", "b" => nil}, {}],
    "hstore[]" => [[{"a" => "1"}]],
    "floats" => [1.0..Float::INFINITY, 1.0...nil], "jsonb" => ["[]", "{}"],
    "daterange" => [Date.new(2024)...nil, Date.new(1, 1, 1)...Date.new(1582, 10, 4),
      PG::PGRange.new(Date.new(2024), Float::INFINITY, exclude_end: true),
      PG::PGRange.new(nil, nil, exclude_end: true, empty: true)],
    "inet" => [IPAddr.new("10.0.0.1")], "cidr" => [IPAddr.new("10.0.0.0/8")], "inet[]" => [[IPAddr.new("::1")]],
    "point" => [POINT], "line" => [PG::Line.new(1.0, 2.0, 3.0)], "lseg" => [PG::LineSegment.new(POINT, OTHER)],
    "box[]" => [[PG::Box.new(POINT, PG::Point.new(0.0, 0.0))]], "path" => [PG::Path.new([POINT], false)],
    "polygon" => [PG::Polygon.new([POINT, OTHER])], "circle" => [PG::Circle.new(POINT, 3.0)], "point[]" => [[POINT]]
  }.freeze

  def test_bound_values_come_back_unchanged
    BOUND.each do |type, values|
      @db.exec("create temporary table t (v #{type})")
      values.each do |bound|
        @db.exec("insert into t values (?)", bound)
        read = @db.query_value("delete from t returning v")
        expected = bound.is_a?(Symbol) ? bound.name : bound
        expected.nil? ? assert_nil(read) : assert_equal(expected, read, type)
      end
      @db.exec("drop table t")
    end
  end

  # An interval of a whole day is the time 00:00:00; the last time of a day is 24:00:00.
  def test_the_end_of_a_day
    day = value("time '24:00:00'")
    hour = DB::Duration.parse("01:00:00")
    assert_equal "24:00:00", day.to_s
    @db.exec("create temporary table t (v time, w interval, x time[], y interval[])")
    @db.exec("insert into t values (?, ?, ?, ?)", day, day, [hour, day, nil], [day, hour])
    whole, one = PG::Interval.new(0, 0, 86_400_000_000), PG::Interval.new(0, 0, 3_600_000_000)
    assert_equal [day, whole, [hour, day, nil], [whole, one]], @db.query_row("delete from t returning v, w, x, y")
    long = DB::Duration.parse("30:00:00")
    assert_equal [whole, PG::Interval.new(0, 0, 108_000_000_000)], value("?::interval[]", [day, long])
    assert_equal [day, Time.utc(2024, 1, 2)],
      @db.query_row("select ?, timestamptz '2024-01-01 00:00:00Z' + ?", day, day)
    [hour, day, hour].each { |time| @db.exec("insert into t (v) values (?)", time) } # kept statements, too
    assert_equal [hour, hour, day], @db.query_column("select v from t order by v")
  end

  # ---- what only the server knows

  # What each way to run a statement binds to a type.
  def bound(type, value)
    sql = "select ?::#{type}::text"
    @db.query("begin")
    kept = Array.new(2) { @db.query_value(sql, value) }
    opened = @db.each_row(sql, value).to_a[0][0]
    @db.query("rollback")
    futures = @db.pipeline { |p| [p.query("select 1"), p.query(sql, value), p.query(sql, value)] }.drop(1)
    futures << @db.pipeline(atomic: true) { |p| p.query(sql, value) }
    [*kept, opened, @db.query_value(sql, value), @db.prepare(sql).query(value)[0][0],
      @db.each_row(sql, value).to_a[0][0], *futures.map { |future| future.value[0][0] }]
  end

  def test_the_type_that_the_server_asks_for_decides
    day = Float::INFINITY
    {["jsonb", []] => "[]", ["json", Set[]] => "[]", ["int[]", []] => "{}", ["text[]", Set[]] => "{}",
     ["text", []] => "{}", ["int[]", [[], []]] => "{}", ["jsonb", [[], [nil]]] => "[[], [null]]",
     ["int[]", [nil]] => "{NULL}",
     ["jsonb", [{"a" => [1]}, {}]] => '[{"a": [1]}, {}]', ["jsonb[]", [{a: 1}]] => '{"{\\"a\\": 1}"}',
     ["hstore", {:a => 1, "b" => nil}] => '"a"=>"1", "b"=>NULL', ["jsonb", {a: 1}] => '{"a": 1}',
     ["hstore[]", [{a: 1}]] => '{"\\"a\\"=>\\"1\\""}',
     ["int4multirange", [1..2, 5...9]] => "{[1,3),[5,9)}", ["int4range[]", [1..2]] => '{"[1,3)"}',
     ["int4multirange[]", [[1..2], []]] => '{"{[1,3)}","{}"}', ["int4multirange", []] => "{}",
     ["int4range", 1..day] => "[1,)", ["numrange", 1..day] => "[1,Infinity]", ["floats", -day..1] => "[-Infinity,1]",
     ["int8range", -day...day] => "(,)", ["floats", 1.5..day] => "[1.5,Infinity]",
     ["daterange", Date.new(2024)...day] => "[2024-01-01,infinity)"}.each do |(type, value), text|
      assert_equal [text], bound(type, value).uniq, "#{value.inspect} for #{type}"
    end
  end

  def test_a_value_that_the_servers_type_does_not_take
    {["int4range", [1..2]] => /malformed range/, ["hstore", {[1] => 2}] => nil, ["nope", []] => /"nope" does not exist/,
     ["int", []] => /invalid input syntax/, ["int4multirange", [1..2**40]] => /malformed|out of range/}
      .each do |(type, value), message|
      run = -> { @db.query_value("select ?::#{type}", value) }
      next run.call unless message

      assert_match message, assert_raises(DB::ServerError, &run).message
      assert_match message, assert_raises(DB::ServerError) { @db.transaction { run.call } }.message
    end
    assert_equal 1, value("1")
  end

  # The table is not there when the server could be asked.
  def test_an_atomic_pipeline_that_makes_its_table
    made = lambda do |type|
      @db.pipeline(atomic: true) do |p|
        p.query("create temp table t (v #{type})")
        p.query("insert into t values (?)", [])
      end
    end
    made["int[]"]
    assert_equal [], @db.query_value("select v from t")
    @db.query("drop table t")
    assert_match(/json/, assert_raises(DB::ServerError) { made["jsonb"] }.message)
    error = assert_raises(DB::ServerError) { @db.transaction { made["int[]"] } }
    assert_equal ["42P01", 2], [error.sql_state, error.statement_number]
  end

  def test_an_empty_array_in_a_copy
    %w[int[] jsonb].each { |type| @db.query("create temp table c_#{type[/\w+/]} (v #{type})") }
    add = ->(sql, value) { @db.copy_in(sql) { |copy| copy << [value] } }
    [[], Set[]].each { |value| add["copy c_int from stdin", value] }
    assert_equal [[], []], @db.query_column("select v from c_int")
    assert_match(/json/, assert_raises(DB::ServerError) { add["copy c_jsonb from stdin", []] }.message)
    add["copy c_jsonb from stdin", {}]
    add["copy c_jsonb from stdin binary", []]
    assert_equal ["{}", "[]"], @db.query_column("select v from c_jsonb")
  end

  # Nobody tells a COPY of text that two nils are boxes, whose delimiter is another.
  def test_an_array_of_missing_boxes
    assert_equal [nil, nil], value("?::box[]", [nil, nil])
    @db.query("create temp table boxes (list box[])")
    add = ->(sql, list) { @db.copy_in(sql) { |copy| copy << [list] } }
    assert_raises(DB::ServerError) { add["copy boxes from stdin", [nil, nil]] }
    add["copy boxes from stdin", "{NULL;NULL}"]
    add["copy boxes from stdin binary", [nil, nil]]
    assert_equal [[nil, nil]] * 2, @db.query_column("select list from boxes")
  end

  def test_an_xid8_of_a_prepared_statement
    assert_equal [[5]], @db.prepare("select ?::xid8").query(5).rows
    assert_equal 2**64 - 1, value("?::text::xid8", 2**64 - 1)
  end

  # Its digits would take 200 MB.
  def test_a_number_with_a_large_exponent
    [BigDecimal("1e200000000"), BigDecimal("-1e-200000000"), BigDecimal("1e131073")].each do |number|
      [-> { value("?", number) }, -> { value("?::numeric[]", [number]) }].each do |bind|
        assert_match(/overflows|out of range/, assert_raises(DB::ServerError, &bind).message)
      end
    end
    [BigDecimal("1e131071"), BigDecimal("1e-16383")].each { |number| assert_equal number, value("?", number) }
  end

  def test_the_class_of_an_argument_says_its_type
    {1 => "integer", 2**40 => "bigint", 2**70 => "numeric", 1.5 => "double precision", true => "boolean",
     "x".b => "bytea", [1, 2**40] => "bigint[]", [1, 1.5] => "double precision[]", [2**70, 1] => "numeric[]",
     Time.now => "timestamp with time zone", Date.today => "date", PG::Interval.new(1) => "interval",
     DB::Duration.new(1) => "interval"}.each do |bound, type|
      assert_equal type, value("pg_typeof(?)::text", bound)
    end
  end

  def test_hashes_and_sets
    assert_equal '{"a": [1, null]}', value("?::jsonb", {"a" => [1, nil]})
    assert_equal [1, 2], value("?::int[]", Set[1, 2])
    assert_equal ['{"a": 1}'], value("?::jsonb[]", [{a: 1}])
  end

  def test_errors_name_the_argument_that_cannot_be_bound
    {Object.new => /argument 2 has a value of the class Object/,
     [1, [Object]] => /argument 2 has a value of the class Class/,
     (Object.new..nil) => /argument 2/,
     {a: Float::NAN} => /argument 2 has a Hash that is no JSON/}.each do |bound, message|
      assert_match message, assert_raises(TypeError) { value("?, ?", 1, bound) }.message
    end
    assert_match(/argument 2 has a String that is not valid UTF-8/,
      assert_raises(ArgumentError) { value("?, ?", 1, "\xff") }.message)
    assert_match(/argument 1 has a String with a NUL/, assert_raises(ArgumentError) { value("?", "a\0b") }.message)
    assert_equal 1, value("1")
  end

  def test_more_parameters_than_the_protocol_has
    error = assert_raises(ArgumentError) do
      @db.query("select 1 where 1 in (#{(["?"] * 65_536).join(", ")})", *Array.new(65_536, 1))
    end
    assert_match(/more than 65535 parameters: bind one array instead.*any\(\?\)/, error.message)
    list = Heddle::DB.bind("select 1 where 1 in (:n)", n: Heddle::DB.list(Array.new(65_536, 1)))
    assert_match(/bind one array/, assert_raises(ArgumentError) { @db.query(list) }.message)
    assert_equal 1, value("1 where 1 = any(?)", Array.new(70_000, 1))
    assert_equal 65_535, value("cardinality(array[#{(["?"] * 65_535).join(", ")}])", *Array.new(65_535, 1))
  end

  def test_a_range_to_an_infinite_time_beside_active_support
    require "active_support"
    require "active_support/time"
    from, to = Time.utc(2024), Float::INFINITY
    assert_equal PG::PGRange.new(from, to), @db.query_value("select '[2024-01-01,infinity]'::tsrange")
    assert_equal PG::PGRange.new(-to, from), @db.query_value("select '[-infinity,2024-01-01]'::tsrange")
  end

  def test_times_and_durations_of_active_support
    require "active_support"
    require "active_support/time"
    noon = Time.utc(2024, 7, 1, 12, 0, 0, 5)
    zoned = noon.in_time_zone("America/New_York")
    row = @db.query_row("select ?, ?::timestamp, ?::timestamptz[], ?::tstzrange, ?, ?::text", zoned, zoned, [zoned],
      zoned...nil, 90.minutes, 1.month + 3.days)
    assert_equal [noon, noon, [noon], noon...nil, PG::Interval.new(0, 0, 5_400_000_000), "1 mon 3 days"], row
  end

  # ---- registered types

  Paint = Struct.new(:name)

  def test_registered_types
    PG.register_type("color", decode: ->(name) { Paint.new(name) }, encode: {Paint => ->(paint) { paint.name }})
    PG.register_type("cube", decode: ->(text) { text.scan(/\d+/).map(&:to_i) })
    PG.register_type("macaddr8", decode: ->(text) { text.delete(":").hex })
    db = connect
    red = Paint.new("red")
    row = db.query_row("select 'red'::color, array['red', null]::color[], row(?::dyed), " \
      "'08:00:2b:01:02:03:04:05'::macaddr8, '(1,2)'::cube", red)
    assert_equal [red, [red, nil], [red], 0x08002b0102030405, [1, 2]], row
    assert_equal %w[red], db.query_value("select ?::text[]", [red])
    assert_equal "red", @db.query_value("select 'red'::text")
  ensure
    forget_registrations
  end

  # The driver looks types and tables up by values of these types.
  def test_registered_types_of_the_servers_catalogues
    PG.register_type("text", decode: :reverse.to_proc)
    PG.register_type("oid", decode: :to_s.to_proc)
    db = connect
    assert_equal ["ba", "red", %w[red], BigDecimal("1.5"), "5"],
      db.query_row("select 'ab'::text, 'red'::color, '{red}'::color[], '1.5'::money, 5::oid")
    db.exec("create temporary table looked_up (n int, twice int generated always as (n * 2) stored)")
    db.copy_in("copy looked_up from stdin with (format binary)") { |copy| copy << [2] }
    assert_equal [2, 4], db.query_row("select * from looked_up")
    assert db.table_exists?("pg_class", schema: "pg_catalog")
    assert_includes db.list_tables(schema: "pg_catalog"), "pg_class"
  ensure
    forget_registrations
  end

  def test_an_error_of_a_registered_type_leaves_the_connection
    PG.register_type("color", decode: ->(name) { raise KeyError, "no #{name}" if name == "red" })
    db = connect
    assert_equal "no red", assert_raises(KeyError) { db.query("select 'red'::color") }.message
    assert_nil db.query_value("select 'grün'::color")
    assert_equal 5, db.query_value("select 5")
  ensure
    forget_registrations
  end

  def forget_registrations
    types = PG.send(:const_get, :Types)
    types.instance_variable_set(:@decoders, {}.freeze)
    types.instance_variable_set(:@encoders, {}.freeze)
  end

  def test_invalid_arguments_of_register_type
    assert_raises(TypeError) { PG.register_type(:color, decode: :to_s.to_proc) }
    assert_raises(TypeError) { PG.register_type("color", decode: 5) }
    assert_raises(TypeError) { PG.register_type("color", encode: {Paint => 5}) }
    assert_raises(ArgumentError) { PG.register_type("color") }
  end

  # ---- times of this process

  def test_local_times
    before = ENV["TZ"]
    ENV["TZ"] = "America/New_York"
    db = connect(time_zone: :local)
    noon = Time.local(2024, 7, 1, 12, 0, 0.5r)
    row = db.query_row("select ?::timestamptz, ?::timestamp, ?::timestamp::text, ?::tsrange, ?::timestamp[]", noon,
      noon, noon, noon...nil, [noon])
    assert_equal [noon, noon, "2024-07-01 12:00:00.5", noon...nil, [noon]], row
    assert_equal [-14_400] * 2, row.first(2).map(&:utc_offset)
  ensure
    ENV["TZ"] = before
  end

  # ---- memory

  def test_values_while_the_gc_runs_and_moves_objects
    db = connect
    sql = "select #{[*LITERALS, *OWN].map(&:first).join(", ")}"
    expected = @db.query_row(sql)
    GC.stress = true
    begin
      assert_equal "red", db.query_value("select 'red'::color")
    ensure
      GC.stress = false
    end
    3.times do
      GC.compact if GC.respond_to?(:compact)
      assert_equal expected, db.query_row(sql)
    end
    fresh = connect
    compacting = GC.auto_compact
    GC.auto_compact = true
    assert_equal expected, fresh.query_row(sql)
  ensure
    GC.auto_compact = compacting unless compacting.nil?
  end
end
