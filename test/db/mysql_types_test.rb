# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"

runs_on also: %i[newer_servers]

# Each type of MariaDB, both ways: a bound value comes back unchanged, and prepared statements (binary) return the
# values of the server's own text.
class MySQLTypesTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  DB = Heddle::DB

  def setup
    @server = mariadb
    @db = DB.connect(@server.url, timeout: 20)
  end

  def teardown
    @db&.close
  end

  UTC = ->(random) { Time.at(random.rand(-62_167_219_200..253_402_300_799), random.rand(1_000_000)).utc }

  # A column's type, and the conversion of its values.
  COLUMNS = {
    "tinyint" => ->(r) { r.rand(-128..127) },
    "tinyint unsigned" => ->(r) { r.rand(0..255) },
    "smallint" => ->(r) { r.rand(-32_768..32_767) },
    "smallint unsigned" => ->(r) { r.rand(0..65_535) },
    "mediumint" => ->(r) { r.rand(-8_388_608..8_388_607) },
    "mediumint unsigned" => ->(r) { r.rand(0..16_777_215) },
    "int" => ->(r) { r.rand(-(1 << 31)..(1 << 31) - 1) },
    "int unsigned" => ->(r) { r.rand(0..(1 << 32) - 1) },
    "bigint" => ->(r) { r.rand(-(1 << 63)..(1 << 63) - 1) },
    "bigint unsigned" => ->(r) { r.rand(0..(1 << 64) - 1) },
    "year" => ->(r) { r.rand(1901..2155) },
    "bit(13)" => ->(r) { r.rand(0..8191) },
    "bit(64)" => ->(r) { r.rand(0..(1 << 64) - 1) },
    "double" => ->(r) { (r.rand - 0.5) * 10.0**r.rand(-300..300) },
    "decimal(40,12)" => ->(r) { BigDecimal("#{r.rand(-(10**28)..10**28)}.#{r.rand(10**12)}") },
    "decimal(65,0)" => ->(r) { BigDecimal(r.rand(-(10**64)..10**64)) },
    "date" => ->(r) { Date.new(r.rand(2) * 8000 + r.rand(1582), r.rand(1..12), r.rand(1..28)) },
    "datetime(6)" => UTC,
    "datetime" => ->(r) { Time.at(r.rand(0..4_000_000_000)).utc },
    "timestamp(6)" => ->(r) { Time.at(r.rand(1..2_147_483_646), r.rand(1_000_000)).utc },
    "time(6)" => ->(r) { DB::Duration.new(r.rand(-3_020_399_999_999..3_020_399_999_999)) },
    "varchar(100)" => ->(r) { Array.new(r.rand(100)) { [r.rand(1..0xd7ff)].pack("U") }.join.encode("UTF-8") },
    "text" => ->(r) { Array.new(r.rand(300)) { [r.rand(0x10000..0x1ffff)].pack("U") }.join.encode("UTF-8") },
    "varbinary(300)" => ->(r) { r.bytes(r.rand(300)) },
    "blob" => ->(r) { r.bytes(r.rand(1000)) },
    "enum('red','grün')" => ->(r) { %w[red grün][r.rand(2)] },
    "set('a','b','c')" => ->(r) { %w[a b c].select { r.rand(2) == 1 }.join(",").encode("UTF-8") },
    "json" => ->(r) { format('{"n": %d, "é": [%d]}', r.rand(1000), r.rand(1000)) }
  }.freeze

  ROUNDS = 40

  COLUMNS.each do |type, make|
    define_method(:"test_#{type.gsub(/\W+/, "_")}") do
      random = Random.new(Minitest.seed)
      @db.exec("create temporary table t (id int primary key, v #{type} null) character set utf8mb4")
      values = Array.new(ROUNDS) { make.call(random) } << nil
      @db.pipeline { |p| values.each_with_index { |value, id| p.query("insert into t values (?, ?)", id, value) } }
      binary = @db.query_column("select v from t order by id")
      text = @db.driver.command("select v from t order by id").rows.map(&:first)
      assert_equal values, binary
      assert_equal values, text
      assert_equal values.map(&:class), binary.map(&:class)
      assert_equal values.grep(String).map(&:encoding), binary.grep(String).map(&:encoding)
      # A value that was read can be bound again, and is found.
      values.compact.first(5).each do |value|
        assert_operator @db.query_value("select count(*) from t where v = ?", value), :>=, 1, value.inspect
      end
    end
  end

  def test_single_floats
    @db.exec("create temporary table t (v float)")
    values = [0.0, 1.5, -0.25, 3.0e38, 1.0e-30, 0.1]
    values.each { |value| @db.exec("insert into t values (?)", value) }
    texts = @db.driver.command("select v from t").rows
    @db.query_column("select v from t").zip(values, texts) do |binary, value, (text)|
      assert_in_delta value, binary, value.abs * 1e-6
      assert_in_delta value, text, value.abs * 1e-5
    end
  end

  def test_invalid_dates_are_nil
    @db.exec("set sql_mode = 'ALLOW_INVALID_DATES'")
    @db.exec("create temporary table t (d date, e datetime, f timestamp null)")
    ["0000-00-00", "2024-00-00", "2024-01-00", "2023-02-31"].each do |day|
      @db.exec("insert into t (d, e) values (?, ?)", day, day)
    end
    [@db.query("select d, e from t"), @db.driver.command("select d, e from t")].each do |result|
      assert_equal [[nil, nil]] * 4, result.rows
    end
    assert_equal 4, @db.query_value("select count(*) from t")
  end

  def test_booleans_with_the_option
    rows = [[true, 7, 300], [false, 0, -1], [nil, nil, nil]]
    query = "select yes, small, more from t order by id"
    [[@server.url, {booleans: true}], ["#{@server.url}?booleans=true", {}]].each do |url, options|
      db = DB.connect(url, timeout: 20, **options)
      db.exec("create temporary table t (id int auto_increment primary key, yes boolean, small tinyint(4), more " \
        "smallint)")
      rows.each { |row| db.exec("insert into t (yes, small, more) values (?, ?, ?)", *row) }
      assert_equal rows, db.query(query).rows
      assert_equal rows, db.driver.command(query).rows
    ensure
      db&.close
    end
    @db.exec("create temporary table t (yes tinyint(1))")
    @db.exec("insert into t values (?)", true)
    assert_equal 1, @db.query_value("select yes from t")
  end

  # They come as bytes, or as text.
  def test_points_inet6_and_uuid
    point = [0, 1, 1, 1.5, -2.0].pack("VCVEE")
    ["select point(?, ?)", "select point(1.5, -2.0)"].zip([[1.5, -2.0], []]) do |sql, arguments|
      assert_equal [point, Encoding::BINARY], @db.query_value(sql, *arguments).then { |value| [value, value.encoding] }
    end
    assert_equal [[point]], @db.driver.command("select point(1.5, -2.0)").rows
    @db.exec("create temporary table t (place point, net inet6, object uuid)")
    row = [point, "2001:db8::1", "123e4567-e89b-12d3-a456-426655440000"]
    @db.exec("insert into t values (?, ?, ?)", *row)
    [@db.query("select * from t"), @db.driver.command("select * from t")].each do |result|
      assert_equal [row], result.rows
      assert_equal %i[bytes text text], result.columns.map(&:type)
    end
  end

  def test_numbers_of_ruby
    big = (1 << 64) + 5
    assert_equal [1, 0, -5, 1 << 63, BigDecimal(big), BigDecimal("1.5"), "sym"],
      @db.query_row("select ?, ?, ?, ?, ?, ?, ?", true, false, -5, 1 << 63, big, BigDecimal("1.5"), :sym)
    assert_equal [-(1 << 63), (1 << 63) - 1, (1 << 64) - 1],
      @db.query_row("select ?, ?, ?", -(1 << 63), (1 << 63) - 1, (1 << 64) - 1)
    assert_equal [[nil] * 20], @db.query("select #{(["?"] * 20).join(", ")}", *([nil] * 20)).rows
  end

  def test_times_of_ruby
    moment = Time.new(2024, 2, 29, 23, 59, 58.25r, "+05:30")
    expected = moment.getutc
    assert_equal expected, @db.query_value("select ?", moment)
    assert_predicate @db.query_value("select ?", moment), :utc?
    assert_equal expected, @db.query_value("select ?", moment.to_datetime)
    assert_equal "2024-02-29 18:29:58.250000", @db.query_value("select cast(? as char)", moment)
    assert_equal Date.new(2024, 2, 29), @db.query_value("select ?", Date.new(2024, 2, 29))
    assert_equal "1582-10-04", @db.query_value("select cast(? as char)", Date.new(1582, 10, 4))
    assert_equal "-00:00:01.5", DB::Duration.parse("-0:00:01.5").to_s.sub(/0+\z/, "")
    assert_equal DB::Duration.parse("838:59:59.000001"),
      @db.query_value("select cast(? as time(6))", "838:59:59.000001")
  end

  # The server's tables have no time zones unless somebody loads them: here the years around this one.
  def load_berlin
    @db.exec("delete from mysql.time_zone_name where name = 'Europe/Berlin'")
    id = @db.query("insert into mysql.time_zone (use_leap_seconds) values ('N')").last_insert_id
    @db.exec("insert into mysql.time_zone_name values ('Europe/Berlin', ?)", id)
    @db.exec("insert into mysql.time_zone_transition_type values (?, 0, 3600, 0, 'CET'), (?, 1, 7200, 1, 'CEST')", id,
      id)
    (2000..2037).flat_map { |year| [[year, 3, 1], [year, 10, 0]] }.each do |year, month, type|
      sunday = Date.new(year, month, -1).then { |day| day - day.wday }
      @db.exec("insert into mysql.time_zone_transition values (?, ?, ?)", id,
        Time.utc(sunday.year, sunday.month, sunday.day, 1).to_i, type)
    end
  end

  def forget_berlin
    @db.exec("delete from mysql.time_zone_name where name = 'Europe/Berlin'")
  end

  def in_zone(name)
    zone = ENV["TZ"]
    ENV["TZ"] = name
    yield
  ensure
    ENV["TZ"] = zone
  end

  # What the server itself converts (TIMESTAMP, now()) is in the process's zone, in summer and winter.
  def test_the_servers_time_is_local_too
    load_berlin
    moments = [Time.utc(2024, 7, 1, 12, 30, 15), Time.utc(2024, 1, 1, 12, 30, 15)]
    @db.exec("create or replace table moments (id int, v timestamp)")
    moments.each_with_index { |moment, id| @db.exec("insert into moments values (?, ?)", id, moment) }
    ["Europe/Berlin", "Asia/Kathmandu", "America/Phoenix", "UTC", ":Asia/Tokyo"].each do |zone|
      in_zone(zone) do
        db = DB.connect(@server.url, timeout: 20, time_zone: :local)
        assert_equal moments, db.query_column("select v from moments order by id"), zone
        assert_equal 2, db.query_value("select count(*) from moments where v in (?, ?)", *moments), zone
        assert_in_delta Time.now, db.query_value("select now(6)"), 60, zone
        db.close
      end
    end
  ensure
    forget_berlin
    @db.exec("drop table if exists moments")
  end

  def test_a_zone_that_the_server_does_not_know
    in_zone("America/New_York") do
      error = assert_raises(DB::LoginFailed) { DB.connect(@server.url, timeout: 20, time_zone: :local) }
      assert_match(/America\/New_York.*mysql_tzinfo_to_sql/, error.message)
    end
  end

  # Like ActiveSupport::TimeWithZone, it claims to be a Time and is not.
  class ZonedTime
    def initialize(time) = @time = time

    def to_time = @time

    def is_a?(klass) = klass == Time || super
  end

  def test_objects_that_only_look_like_a_time
    moment = Time.utc(2024, 2, 29, 23, 59, 58)
    assert_equal moment, @db.query_value("select ?", ZonedTime.new(moment))
    assert_equal moment, @db.query_value("select ?", ZonedTime.new(moment.getlocal("+05:30")))
    assert_raises(TypeError) { @db.query("select ?", ZonedTime.new("2024")) }
  end

  # The shortest text is the number that was written.
  def test_single_floats_read_as_they_were_written
    @db.exec("create temporary table t (id int auto_increment primary key, v float)")
    random = Random.new(Minitest.seed)
    written = [1.1, -1.1, 0.1, 3.14, 99.99, 1.0e-5, 123456.7, 1.0e10, 3.4e38, 1.5e-38, 1.0e-45, 16_777_216.0, 0.3, 1e22,
      7e-20] +
      Array.new(200) { "#{random.rand(-999_999..999_999)}e#{random.rand(-35..30)}".to_f }
    @db.pipeline { |p| written.each { |value| p.query("insert into t (v) values (?)", value) } }
    assert_equal written, @db.query_column("select v from t order by id")
    singles = Array.new(2000) { [random.rand(1 << 32)].pack("L").unpack1("e") }
      .reject { |value| value.nan? || value.infinite? }
    singles.each_slice(500) do |some|
      rows = @db.pipeline { |p| some.map { |value| p.query("select cast(? as float)", value) } }
        .map { |future| future.value[0][0] }
      assert_equal some, rows.map { |value| [value].pack("e").unpack1("e") }
      rows.each do |value|
        assert_operator value.to_s[/\A[^e]*/].delete("-.").sub(/\A0+/, "").sub(/0+\z/, "").size, :<=, 9, value.to_s
      end
    end
  end

  # The server would store its largest number instead, without an error.
  def test_numbers_too_large_for_the_server
    [BigDecimal("1e70000"), BigDecimal("-1e65"), 10**65, -(10**65), 10**5000].each do |number|
      error = assert_raises(ArgumentError) { @db.query("select ?", number) }
      assert_match(/65 digits/, error.message)
    end
    [BigDecimal("1e-70000"), BigDecimal("-1e-700000000")].each do |number|
      assert_raises(ArgumentError) { @db.query("select ?", number) }
    end
    [BigDecimal(0), BigDecimal("1e-30"), BigDecimal("9" * 65), BigDecimal("-#{"9" * 65}"), 10**65 - 1, 1 - 10**65,
      BigDecimal("1e64")].each do |number|
      assert_equal number, @db.query_value("select ?", number)
    end
    assert_raises(ArgumentError) { @db.query("select ?", BigDecimal("NaN")) }
    assert_raises(ArgumentError) { @db.query("select ?", BigDecimal("-Infinity")) }
  end

  # Text that is not converted, in SQL and in values.
  def test_the_charset_binary
    db = DB.connect(@server.url, timeout: 20, charset: "binary")
    assert_equal "grün".b, db.query_value("select 'grün'")
    assert_equal "grün".b, db.query_value("select ?", "grün")
    assert_equal "gr\xFCn".b, db.query_value("select ?", "grün".encode("ISO-8859-1"))
    assert_equal "\xff\x00".b, db.query_value("select ?", +"\xff\x00")
    db.exec("create temporary table t (`größe` varchar(9) character set utf8mb4)")
    db.exec("insert into t values (?)", "grün")
    result = db.query("select * from t")
    assert_equal [["größe"], [["grün".b]]], [result.fields, result.rows]
    db.close
  end

  # Names of columns and errors come in the charset of the connection.
  def test_names_and_errors_in_latin1
    db = DB.connect(@server.url, timeout: 20, charset: "latin1")
    result = db.query("select 1 as `größe`")
    assert_equal ["größe"], result.fields
    assert_equal "größe", result.columns.first.name
    error = assert_raises(DB::ServerError) { db.query("select größe from dual") }
    assert_includes error.message, "größe"
    db.close
    @db.exec("create database if not exists `gr\u00fcn`")
    url = @server.url.sub(%r{/[^/]*\z}, "/gr%C3%BCn")
    db = DB.connect(url, timeout: 20, charset: "latin1")
    assert_equal "grün".encode("Windows-1252"), db.query_value("select database()")
    db.close
    assert_match(/charset/,
      assert_raises(ArgumentError) { DB.connect(@server.url, charset: "ascii", database: "grün") }.message)
  ensure
    @db.exec("drop database if exists `gr\u00fcn`")
  end

  def test_local_time
    load_berlin
    zone = ENV["TZ"]
    ENV["TZ"] = "Europe/Berlin"
    db = DB.connect(@server.url, timeout: 20, time_zone: :local)
    moment = Time.utc(2024, 7, 1, 12, 30, 15, 123_456)
    assert_equal "2024-07-01 14:30:15.123456", db.query_value("select cast(? as char)", moment)
    assert_equal moment, db.query_value("select ?", moment)
    assert_equal 7200, db.query_value("select ?", moment).utc_offset
  ensure
    ENV["TZ"] = zone
    forget_berlin
    db&.close
  end

  def test_text_in_other_encodings
    assert_equal "grün", @db.query_value("select ?", "grün".encode("ISO-8859-1"))
    assert_equal "grün", @db.query_value("select 'grün'".encode("UTF-16LE").encode("UTF-8"))
    assert_equal "grün", @db.query_value("select 'grün'".encode("ISO-8859-1"))
    db = DB.connect(@server.url, timeout: 20, charset: "latin1")
    assert_equal ["grün".encode("Windows-1252"), Encoding::Windows_1252],
      db.query_value("select ?", "grün").then { |s| [s, s.encoding] }
    assert_raises(Encoding::UndefinedConversionError) { db.query("select ?", "日本") }
    assert_equal 1, db.query_value("select 1")
    db.close
    assert_raises(ArgumentError) { DB.connect(@server.url, charset: "sjis") }
  end

  def test_bytes_that_are_not_text
    assert_equal Encoding::BINARY, @db.query_value("select x'ff00'").encoding
    assert_equal "\xff\x00".b, @db.query_value("select ?", "\xff\x00".b)
  end

  def test_metadata_of_columns
    @db.exec("create temporary table t (id int unsigned not null, price decimal(10,2), name varchar(5) character set " \
      "utf8mb4, raw blob)")
    id, price, name, raw = @db.query("select id, price, name as called, raw from t as u").columns
    assert_equal [:integer, true, false, "u"], [id.type, id.unsigned, id.nullable, id.table]
    assert_equal [:decimal, 2, true], [price.type, price.scale, price.nullable]
    assert_equal [:text, "called", 20], [name.type, name.name, name.length]
    assert_equal :bytes, raw.type
  end

  def test_rows_of_many_columns
    [1, 63, 64, 65, 128, 129, 1000].each do |count|
      sql = "select #{(1..count).to_a.join(", ")}"
      assert_equal [(1..count).to_a], @db.query(sql).rows
      assert_equal [(1..count).to_a], @db.driver.command(sql).rows
    end
  end

  def test_several_results
    @db.exec("create or replace procedure two_results() begin select 1 as a; select 'x' as b, 2.5 as c; end")
    first = @db.query("call two_results()")
    assert_equal [[[1]], ["a"]], [first.rows, first.fields]
    assert_equal [[["x", BigDecimal("2.5")]], %w[b c]], [first.following.rows, first.following.fields]
    refute_predicate first.following.following, :rows?
    assert_equal 1, @db.query_value("select 1")
  ensure
    @db&.exec("drop procedure if exists two_results")
  end

  # Rows that bypass the stream's buffer, whose last value may share the row's memory: changing that value changes
  # nothing else.
  def test_large_values_among_others
    text, bytes = "é" * 60_000, Random.new(1).bytes(300_000)
    day, price = Date.new(2024, 2, 29), BigDecimal("1.5")
    [[1, text, bytes], [bytes, text], [text, day, bytes], [day, bytes, price], [bytes, 2], [text, "short"],
      [nil, bytes]].each do |row|
      result = @db.query("select #{row.map { "?" }.join(", ")} from seq_1_to_2", *row)
      assert_equal [row.compact.map(&:class)] * 2, result.rows.map { |values| values.compact.map(&:class) }
      assert result.rows == [row, row], row.map(&:class).inspect
      assert_equal row.grep(String).map(&:encoding), result[0].grep(String).map(&:encoding)
      result[0].grep(String).each { |value| value << "x" && value.setbyte(0, 65) }
      GC.start
      assert result[1] == row
      assert_equal row.grep(String).map { |value| value.bytesize + 1 }, result[0].grep(String).map(&:bytesize)
    end
    assert_equal [["x" * 100_000, day]],
      @db.driver.command("select repeat('x', 100000), cast('2024-02-29' as date)").rows
  end

  # More than one packet holds, in both directions.
  def test_packets_of_16_mib
    @db.exec("set global max_allowed_packet = 64 << 20") # a session takes its settings when it connects
    db = DB.connect(@server.url, timeout: 60)
    sizes = [(1 << 24) - 1 - 100, (1 << 24) - 1, (1 << 24) + 7, 2 * ((1 << 24) - 1)]
    sizes.each do |size|
      bytes = Random.new(size).bytes(size)
      assert bytes == db.query_value("select ?", bytes), "#{size} bytes came back as others"
    end
    # One whose last packet is empty: 16 MiB - 1 together with what is around the value.
    (0..24).each do |less|
      size = (1 << 24) - 1 - less
      assert_equal size, db.query_value("select repeat('x', ?)", size).bytesize
    end
  ensure
    db&.close
  end
end
