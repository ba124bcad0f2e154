# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/postgresql_server"
require "support/odbc_contract"

# Values both ways, by each driver: exact numbers, fractions of seconds, GUIDs, long values, encodings, several results.
class ODBCTypesTest < Minitest::Test
  include ODBCContract

  hard_deadline 60

  TIME = Time.utc(2024, 2, 29, 23, 59, 58, 123_456)
  DURATION = Heddle::DB::Duration.parse("12:30:01.5")
  LONG = "é😀x" * 100_000 # several pieces, whose ends cut characters in two
  BYTES = Random.new(1).bytes(300_001)

  def test_mariadb
    with(mariadb_source) do |db|
      db.query("create temporary table x (a decimal(30,10), b time(6), c datetime(6), d bit(1), e bigint unsigned, " \
        "f longtext, g longblob, h double, i date, j varchar(3))")
      row = [BigDecimal("-12345678901234567890.0123456789"), DURATION, TIME, true, 2**64 - 1, LONG, BYTES, 0.1,
        Date.new(2024, 2, 29), "ab"]
      db.exec("insert into x values (#{(["?"] * 10).join(", ")})", *row)
      db.exec("insert into x values (#{(["?"] * 10).join(", ")})", *([nil] * 10))
      result = db.query("select * from x order by a desc")
      assert_equal [row, [nil] * 10], result.rows
      assert_equal %i[decimal time datetime boolean integer text bytes float date text], result.columns.map(&:type)
      assert_equal [Encoding::UTF_8, Encoding::BINARY], result.first.values_at(5, 6).map(&:encoding)
      assert result.columns[4].unsigned
      assert_equal "x", result.columns[0].table
    end
  end

  def test_postgresql
    with(postgresql_source) do |db|
      db.query("create temporary table x (a numeric(30,10), b timestamp, c boolean, d text, e bytea, f uuid, " \
        "g double precision, h date, i bigint, j time)")
      row = [BigDecimal("-12345678901234567890.0123456789"), TIME, true, LONG, BYTES,
        "0189e3a0-7e1c-7cc0-98c6-0d0e1b1b1b1b", 0.1, Date.new(2024, 2, 29), -2**63, DURATION]
      db.exec("insert into x values (#{(["?"] * 10).join(", ")})", *row)
      result = db.query("select a, b, c, d, e, f, g, h, i from x")
      assert_equal row.take(9), result.first
      assert_equal [:decimal, :datetime, :text, :uuid], result.columns.values_at(0, 1, 3, 5).map(&:type)
    end
  end

  def test_sqlite
    with(source("types", "SQLite", Database: ":memory:")) do |db|
      db.query("create table x (a integer, b timestamp, c text, d blob, e double, f varchar(2))")
      row = [2**62, TIME.round(3), LONG, BYTES, 0.1, "longer than its type"]
      db.exec("insert into x values (?, ?, ?, ?, ?, ?)", *row)
      assert_equal row, db.query("select * from x").first
      # A column holds what it was given.
      db.exec("insert into x (a) values (?), (?)", 1.5, "text")
      assert_equal [2**62, 1.5, "text"], db.query_column("select a from x")
    end
  end

  # More than a block and than a job holds, with and without columns that are read in pieces.
  def test_many_rows
    with(mariadb_source) do |db|
      result = db.query("select seq, repeat('x', seq % 7), seq * 1.5 from seq_1_to_20000")
      assert_equal 20_000, result.size
      result.each_with_index do |(number, text, half), index|
        next if [number, text.size, half] == [index + 1, (index + 1) % 7, (index + 1) * 1.5]

        flunk "row #{index}: #{number}, #{text}, #{half}"
      end
      long = db.query("select seq, cast(repeat('y', 5000) as char(5000)), repeat('z', 3) from seq_1_to_700")
      assert_equal (1..700).map { |number| [number, 5000, "zzz"] }, long.map { |number, y, z| [number, y.size, z] }
      some = db.each_row("select seq from seq_1_to_5000", fetch: 1700).first(4000)
      assert_equal (1..4000).to_a, some.flatten
    end
  end

  # SQLite's columns hold what they were given; the driver makes NULL, 0 or false of what it does not expect.
  def test_values_of_other_types_in_columns_of_sqlite
    with(source("types", "SQLite", Database: ":memory:")) do |db|
      {"real" => [1.5, "text", "1x"], "boolean" => [true, false, "yes", 2], "integer" => [7, "text", 1.5],
       "date" => [Date.new(2024, 2, 29), Date.new(1500, 3, 1), "soon", "2024-02-31", 17],
       "timestamp" => [TIME.round(3), Time.utc(2024), "2024-01-01 25:00:00", "soon", 17],
       "time" => [DURATION, "noon", 17], "varchar(3)" => ["longer", "1"]}.each do |type, values|
        db.query("drop table if exists x")
        db.query("create table x (n integer primary key, v #{type})")
        [*values, nil].each { |value| db.exec("insert into x (v) values (?)", value) }
        assert_equal [*values, nil], db.query_column("select v from x order by n"), type
        assert_equal [*values, nil], db.each_row("select v from x order by n", fetch: 2).map(&:first), type
      end
    end
  end

  # MariaDB's driver ends a wide text at its first NUL.
  def test_texts_with_nul
    [{}, {statement_cache: :always}].each do |options|
      with(mariadb_source, **options) do |db|
        db.query("create temporary table x (a varchar(20), b longtext, c char(5)) character set utf8mb4")
        rows = [["a\0é", "\0", "\0b"], ["\0" * 20, "é\0😀" * 70_000, "x"], ["é😀", "", nil]]
        rows.each { |row| db.exec("insert into x values (?, ?, ?)", *row) }
        2.times { assert_equal rows, db.query("select a, b, c from x").rows }
        assert_equal [Encoding::UTF_8] * 2, db.query("select a, b from x").first.map(&:encoding)
        assert_equal ["é\0b"], db.query_column("select cast(concat('é', char(0), 'b') as char(10))")
      end
    end
  end

  # The driver takes a date that it cannot read for today.
  def test_dates_that_postgresql_s_driver_cannot_read
    with(postgresql_source) do |db|
      %w[infinity -infinity 20000-01-01].each do |text|
        error = assert_raises(RangeError) { db.query("select date '#{text}'") }
        assert_includes error.message, "::text"
        assert_raises(RangeError) { db.each_row("select date '#{text}' union all select date '2024-01-01'").to_a }
        assert_equal 1, db.query_value("select 1")
      end
      dates = [Date.new(1, 1, 1), Date.new(1500, 3, 1), Date.new(9999, 12, 31), nil]
      db.query("create temporary table x (d date)")
      dates.each { |date| db.exec("insert into x values (?)", date) }
      assert_equal dates, db.query_column("select d from x order by d")
      assert_equal [-Float::INFINITY, Time.utc(-43, 3, 15)],
        db.query_row("select timestamp '-infinity', timestamp '0044-03-15 BC'")
    end
  end

  # Times with a zone come with the digits of the session's zone.
  def test_the_session_has_the_zone_of_its_values
    with(mariadb_source) { |db| db.query("set global time_zone = '+09:00'") }
    before, ENV["TZ"] = ENV["TZ"], "Asia/Tokyo" # without summer time, which MariaDB may not know
    [postgresql_source, mariadb_source].product(%i[utc local]).each do |address, zone|
      with(address, time_zone: zone) do |db|
        time = db.query_value("select current_timestamp(6)")
        assert_in_delta Time.now, time, 60, "#{address} #{zone}"
        assert_equal zone == :utc, time.utc?
      end
    end
  ensure
    ENV["TZ"] = before
    with(mariadb_source) { |db| db.query("set global time_zone = default") }
  end

  def test_a_timestamptz_of_postgresql
    with(postgresql_source(ConnSettings: "set timezone to 'Asia/Tokyo'")) do |db|
      assert_equal TIME, db.query_value("select '2024-02-29 23:59:58.123456+00'::timestamptz")
      db.query("create temporary table zoned (t timestamptz)")
      db.exec("insert into zoned values (?)", TIME)
      assert_equal TIME, db.query_value("select t from zoned where t = '2024-02-29 23:59:58.123456Z'")
    end
  end

  def test_local_time
    zone, ENV["TZ"] = ENV["TZ"], "Asia/Tokyo"
    with(mariadb_source, time_zone: :local) do |db|
      time = Time.local(2024, 7, 1, 12, 0, 0.5r)
      assert_equal [time, time.utc_offset], db.query_value("select cast(? as datetime(6))", time)
        .then { |value| [value, value.utc_offset] }
    end
  ensure
    ENV["TZ"] = zone
  end

  def test_narrow_text
    {mariadb_source(CHARSET: "latin1") => "?",
     postgresql_source("PostgreSQL ANSI", ConnSettings: "set client_encoding to 'latin1'") => "?::text"}
      .each do |address, parameter|
      with(address, encoding: "iso-8859-1") do |db|
        value = db.query_value("select concat(#{parameter}, ?)", "é", "b" * 70_000)
        assert_equal ["éb", Encoding::ISO_8859_1], [value[0, 2].encode("utf-8"), value.encoding]
        assert_equal 70_001, value.size
        assert_raises(EncodingError) { db.query("select #{parameter}", "Ω") }
        error = assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all") }
        assert_match(/nowhere_at_all/, error.message)
        assert_predicate db, :healthy?
      end
    end
  end

  # MySQL also stores dates that are none.
  def test_unusual_dates
    with(mariadb_source) do |db|
      db.query("set sql_mode = 'ALLOW_INVALID_DATES'")
      db.query("create temporary table x (a date, b datetime)")
      none = %w[2024-02-31 2023-02-29 2024-04-31]
      none.each { |date| db.exec("insert into x values ('#{date}', '#{date} 10:00:00')") }
      assert_equal [[nil, nil]] * none.size, db.query("select * from x").rows
      dates = [[1500, 3, 1], [2024, 2, 29], [1900, 2, 28], [2023, 12, 31]].map { |parts| Date.new(*parts) }
      dates << Date.new(1582, 10, 10, Date::GREGORIAN)
      assert_equal dates, dates.map { |date| db.query_value("select cast(? as date)", date) }
    end
  end

  # These were written out, in seconds.
  def test_decimals_with_large_exponents
    with(source("types", "SQLite", Database: ":memory:")) do |db|
      ["1e999999999", "-1.5e-999999999"].each do |text|
        decimal = BigDecimal(text)
        error = assert_within(2) { assert_raises(ArgumentError) { db.query("select ?", decimal) } }
        assert_includes error.message, "1000 digits"
      end
    end
  end

  def test_several_results
    with(mariadb_source) do |db|
      db.query("drop procedure if exists two_results")
      db.query("create procedure two_results() begin select 1 as a; select 'x' as b, 2.5 as c; end")
      result = db.query("call two_results()")
      following = result.following
      assert_equal [[[1]], %w[b c], [["x", BigDecimal("2.5")]]], [result.rows, following.fields, following.rows]
      assert_equal 1, db.query_value("select 1")
      db.query("drop procedure two_results")
    end
  end

  private

  include MariaDBHelpers
  include PostgreSQLHelpers
end
