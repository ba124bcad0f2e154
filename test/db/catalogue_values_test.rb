# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/mysql_server"
require "support/postgresql_server"
require "support/sqlite_helpers"
require "heddle/db"

runs_on short: false

# Values of all types that the server itself names, in its catalogue: each gets each text of which the server can make a
# value. What Heddle reads is what the field's own library reads, in each way to run a query; and bound again it is the
# same value for the server. HEDDLE_STRESS adds as many random texts, HEDDLE_STRESS_SEED is what a failure printed.
module CatalogueValues
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })
  RANDOM = Random.new(SEED)
  LETTERS = ["a", "B", "7", "0", "é", "漢", "😀", " ", "'", '"', "\\", ",", "{", "}", "(", ")", ":", "-", "."].freeze

  # Numbers, times and texts at the ends of what types hold, and what some types want.
  TEXTS = [
    "", " ", "0", "1", "-1", "7", "127", "-128", "255", "32767", "-32768", "65535", "8388607", "16777215", "2147483647",
    "-2147483648", "4294967295", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1.5", "-0.1",
    "0.1", "1e-7", "1e10", "3.4028235e38", "1.7976931348623157e308", "5e-324", "123456789.123456789", "99999.99999",
    "NaN", "Infinity", "-Infinity", "infinity", "t", "f", "true", "a", "abc", "ÄÖ€", "漢字😀", "it's", "a\\b", "\"q\"",
    "NULL", "a,b", "2024-02-29", "1500-03-01", "0001-01-01", "9999-12-31", "1582-10-10", "2024-02-29 12:34:56",
    "2024-02-29 12:34:56.123456", "1969-12-31 23:59:59.999999", "2038-01-19 03:14:07", "1000-01-01 00:00:00",
    "0044-03-15 BC", "294276-12-31 23:59:59", "00:00:00", "23:59:59.999999", "24:00:00", "838:59:59", "-838:59:59",
    "12:34:56+05:30", "1 year 2 mons 3 days 04:05:06.789", "-1 mons", "2024", "1901", "2155", "\\x00ff",
    "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "192.168.0.1", "10.0.0.0/8", "::1", "2001:db8::/32", "08:00:2b:01:02:03",
    "08:00:2b:01:02:03:04:05", "(1,2)", "((1,2),(3,4))", "[(1,2),(3,4)]", "{1,2,3}", "<(1,2),3>", "0101", "101",
    %({"a": [1, null, "é"]}), "[]", "null", "[1, 2.5]", "<a>é</a>", "empty", "[1,5)", "(,5]", "[2024-01-01,)",
    "{[1,3),[5,9)}", "{}", "0/16B3748", "10:20:10", "'a':1 'b':2A", "a & b", "pg_class", "=r/postgres", "$.a[1]", "utf8"
  ].freeze

  # @return [Array<String>]
  def self.texts
    TEXTS + Array.new(ENV["HEDDLE_STRESS"].to_i) do
      case RANDOM.rand(4)
      when 0 then Array.new(RANDOM.rand(12)) { LETTERS.sample(random: RANDOM) }.join
      when 1 then RANDOM.rand(-10**RANDOM.rand(1..19)..10**RANDOM.rand(1..19)).to_s
      when 2 then (RANDOM.rand(-1.0..1.0) * 10.0**RANDOM.rand(-30..30)).to_s
      else (Time.utc(1, 1, 1) + RANDOM.rand(315_000_000_000)).strftime("%Y-%m-%d %H:%M:%S.") + RANDOM.rand(10**6).to_s
      end
    end
  end

  private

  # All differences at once.
  def assert_none(differences)
    assert_empty differences.first(40), "seed #{SEED}: #{differences.size} differences"
  end

  # The same value, of the same class; NaN is not equal to itself.
  def same?(one, other) = one.instance_of?(other.class) && (one == other || one.inspect == other.inspect)
end

# All types of pg_type, and arrays of each, against pg.
class CatalogueValuesOfPostgreSQLTest < Minitest::Test
  include PostgreSQLHelpers
  include CatalogueValues

  hard_deadline 60 + 60 * ENV["HEDDLE_STRESS"].to_i

  TYPES = <<~SQL
    select format_type(oid, null) from pg_type
    where typtype in ('b', 'd', 'e', 'r', 'm') and typsend <> 0 and typname !~ '^_|^pg_toast'
    union all
    select format_type(typarray, null) from pg_type where typtype in ('b', 'd', 'e', 'r', 'm') and typsend <> 0
      and typarray <> 0
  SQL
  # The type's own output function, since some have a cast to text that returns another text.
  FIT = <<~SQL
    create function pg_temp.fit(given text, type text) returns text language plpgsql as $$
    declare result text;
    begin
      execute format('select format(''%%s'', %L::%s)', given, type) into result;
      return result;
    exception when others then return null;
    end $$
  SQL

  def setup
    require "pg"
    url = postgresql.url
    @db = Heddle::DB.connect(url, timeout: 30)
    @pg = PG.connect(url).tap { |pg| pg.exec("set timezone = 'UTC'; set client_min_messages = error") }
    @db.query("set client_min_messages = error")
    @db.query(FIT)
  end

  def teardown
    @db&.close
    @pg&.close
  end

  def test_values_of_all_types
    types = @db.query_column(TYPES)
    found = @db.query("select type, given, pg_temp.fit(given, type) from unnest(?::text[]) type, unnest(?::text[]) " \
      "given where pg_temp.fit(given, type) is not null", types, CatalogueValues.texts.uniq).rows
    assert_operator found.map(&:first).uniq.size, :>, types.size / 2
    found.reject! { |type, given| type.start_with?('"char"') && !given.ascii_only? } # a part of a letter
    assert_none(found.flat_map { |type, given, text| differences(type, given, text) })
  end

  private

  # @return [Array] what differs
  def differences(type, given, text)
    literal = "#{@pg.escape_literal(given)}::#{type}"
    read = @db.query_value("select #{literal}")
    by_text = @db.query("select 1; select #{literal}").following[0][0]
    wrong = []
    wrong << [:text, read, by_text] unless same?(read, by_text)
    theirs = @pg.exec("select #{literal}").getvalue(0, 0)
    wrong << [:pg, read, theirs] if String === read && read.encoding == Encoding::UTF_8 && read != theirs
    back = bound_again(type, read)
    wrong << [:bound, read, back, text] unless back.nil? || canonical(type, back) == canonical(type, text)
    wrong.map { |difference| [type, given, *difference] }
  end

  # A value's class is the type that it is bound as, and of some types the server makes no others. The name of a
  # function or an operator is no name of one alone.
  UNBOUND = /\A(?:xid8?|cid|int2vector|oidvector|regproc|regoper)\b/

  # A BigDecimal does not keep zeros behind its last digit.
  def canonical(type, text)
    return text unless String === text && type.match?(/numeric|numrange|nummulti|cardinal|money/)

    text.gsub(/(\.\d*?)0+(?=\D|\z)/) { ($1 == ".") ? "" : $1 }
  end

  # nil without a way: infinite dates are Floats, which the guide tells to bind as text.
  def bound_again(type, value)
    return if type.match?(UNBOUND) || (Float === value && value.infinite? && !type.match?(/double|real/))

    @db.query_value("select format('%s', ?::#{type})", value)
  rescue Heddle::DB::ServerError, ArgumentError, TypeError => error
    error
  end
end

# Columns of all types of the server's own tables, by information_schema, against mysql2.
module CatalogueValuesOfMySQL
  include CatalogueValues

  OF_SERVER = "from information_schema.columns where table_schema in " \
    "('mysql', 'sys', 'performance_schema', 'information_schema')"
  # Of types that differ in their lengths alone, one.
  FEW = "select max(column_type) #{OF_SERVER} group by data_type, numeric_scale, datetime_precision, " \
    "column_type like '%unsigned%'"
  ALL = "select distinct column_type #{OF_SERVER}"
  # Tables that change by themselves are others.
  TABLES = "select table_name from information_schema.tables where table_schema = 'mysql' and " \
    "table_type = 'BASE TABLE' and table_name not like '%log' and table_name not like '%stat%'"

  def setup
    require "mysql2"
    @db = Heddle::DB.connect(server.url, timeout: 30)
    @kept = Heddle::DB.connect(server.url, timeout: 30, statement_cache: :always)
    @mysql2 = Mysql2::Client.new(host: server.host, port: server.port, username: server.username,
      password: server.password, database: server.database, encoding: "utf8mb4")
    @mysql2.query_options.merge!(as: :array, cast_booleans: false, database_timezone: :utc, application_timezone: :utc)
    @mysql2.query("set time_zone = '+00:00', sql_mode = 'traditional'") # dates that are none are refused
  end

  def teardown
    [@db, @kept, @mysql2].each { |one| one&.close }
  end

  def test_values_of_all_types_of_columns
    types = @db.query_column(ENV["HEDDLE_STRESS"] ? ALL : FEW)
    assert_operator types.size, :>, 20
    assert_none(types.flat_map { |type| differences(type) })
  end

  # As the server has filled them.
  def test_the_servers_own_tables
    names = @db.query_column(TABLES)
    assert_operator names.size, :>, 15
    assert_none(names.flat_map do |name|
      sql = "select * from mysql.`#{name}` limit 200"
      rows = [@db.query(sql).rows, @kept.query(sql).rows, @kept.query(sql).rows, @db.each_row(sql, fetch: 7).to_a]
      theirs = @mysql2.query(sql).to_a
      rows.each_with_index.reject { |own, _| alike?(own, theirs) }.map { |own, way| [name, way, own, theirs] }
    end)
  end

  private

  # @return [Array] what differs, of one type of columns
  def differences(type)
    return [] unless made?(type)

    # Not a day that mysql2's calendar does not have.
    CatalogueValues.texts.uniq.grep_v(/1582-10-10/).each_with_index { |text, n| give(n, text) }
    ways = [@db, @kept, @kept].map { |db| db.query("select n, v from given_values order by n").rows }
    theirs = their_rows(type, "select n, v from given_values order by n")
    # mysql2 gives the double that a single is, and not the one with its digits.
    [*ways, theirs].each { |rows| rows.each { |row| row[1] = [row[1]].pack("e") if row[1] } } if type.match?(/float/)
    wrong = ways.reject { |rows| alike?(rows, theirs) }.map { |rows| [type, :read, *unlike(rows, theirs)] }
    wrong + bound_again.map { |difference| [type, :bound, *difference] }
  end

  # As text, a FLOAT has six digits, and a DOUBLE(7,6) seven. A TIME is a Time to mysql2, if it is one of a day.
  def their_rows(type, sql)
    return @db.query(sql).rows if type.match?(/\Atime\b/)

    (type.match?(/float|double/) ? @mysql2.prepare(sql).execute : @mysql2.query(sql)).to_a
  end

  # Some types are too large in this character set, and some only the server's own tables can have.
  def made?(type)
    %w[given bound].each do |name|
      @db.query("drop table if exists #{name}_values")
      @db.query("create table #{name}_values (n int primary key, v #{type}) character set utf8mb4")
    end
  rescue Heddle::DB::ServerError
    false
  end

  # The server refuses most.
  def give(n, text)
    @mysql2.query("insert into given_values values (#{n}, '#{@mysql2.escape(text)}')")
  rescue Mysql2::Error
    nil
  end

  def bound_again
    failed = @db.query("select n, v from given_values order by n").rows.filter_map do |n, value|
      next if value == "" # what an enum has for a text that is none of its own, and takes from nobody

      @db.exec("insert into bound_values values (?, ?)", n, value)
      nil
    rescue Heddle::DB::ServerError, ArgumentError, TypeError => error
      [value, error]
    end
    failed + @db.query("select g.v, cast(g.v as char), cast(b.v as char) from given_values g join bound_values b " \
      "using (n) where not (cast(g.v as binary) <=> cast(b.v as binary))").rows
  end

  def alike?(rows, theirs) = unlike(rows, theirs).empty?

  def unlike(rows, theirs)
    return [[rows.size, theirs.size]] unless rows.size == theirs.size

    rows.flatten(1).zip(theirs.flatten(1)).reject { |own, other| normal(own) == normal(other) }.first(10)
  end

  def normal(value)
    case value
    when BigDecimal, Float then value.to_r
    when String then value.b
    when Date then value.to_s
    else value
    end
  end
end

class CatalogueValuesOfMariaDBTest < Minitest::Test
  include MariaDBHelpers
  include CatalogueValuesOfMySQL

  hard_deadline 120 + 60 * ENV["HEDDLE_STRESS"].to_i

  def server = mariadb
end

class CatalogueValuesOfMySQLTest < Minitest::Test
  include MySQLHelpers
  include CatalogueValuesOfMySQL

  hard_deadline 180 + 60 * ENV["HEDDLE_STRESS"].to_i

  def server = mysql
end

# SQLite has no catalogue of types: a column has the name that its maker gave it. Here are those of "Datatypes In
# SQLite", each with what SQLite makes of the texts, numbers and bytes; against sqlite3.
class CatalogueValuesOfSQLiteTest < Minitest::Test
  include SQLiteHelpers
  include CatalogueValues

  hard_deadline 60 + 60 * ENV["HEDDLE_STRESS"].to_i

  TYPES = ["int", "integer", "bigint", "unsigned big int", "character(20)", "text", "clob", "blob", "", "real",
    "double precision", "float", "numeric"].freeze

  def setup
    require "sqlite3"
    super
    @db = Heddle::DB.connect("sqlite://#{@path}")
    @kept = Heddle::DB.connect("sqlite://#{@path}", statement_cache: :always)
    @sqlite3 = SQLite3::Database.new(@path)
  end

  def teardown
    [@db, @kept, @sqlite3].each { |one| one&.close }
    super
  end

  def test_values_in_columns_of_all_types
    assert_none(TYPES.each_with_index.flat_map { |type, index| differences("v#{index}", type) })
  end

  private

  def differences(table, type)
    @sqlite3.execute("create table #{table} (n integer primary key, v #{type})")
    @sqlite3.execute("create table #{table}_bound (n integer primary key, v #{type})")
    @sqlite3.transaction { give(table) }
    sql = "select n, v from #{table} order by n"
    theirs = @sqlite3.execute(sql).map(&:last)
    ways = [@db, @kept, @kept].map { |db| db.query(sql).rows.map(&:last) } << @db.each_row(sql, fetch: 3).map(&:last)
    wrong = ways.flat_map { |values| values.zip(theirs).reject { |own, other| same?(undecided(own, other), other) } }
    @db.transaction do
      @db.query(sql).rows.each { |row| @db.exec("insert into #{table}_bound values (?, ?)", *row) }
    end
    back = @sqlite3.execute("select quote(one.v), quote(two.v) from #{table} one join #{table}_bound two using (n) " \
      "where quote(one.v) <> quote(two.v)")
    (wrong + back).map { |pair| [type, *pair] }
  end

  # A number in a NUMERIC column is a BigDecimal.
  def undecided(own, other)
    return own unless BigDecimal === own

    (Float === other) ? own.to_f : own.to_i
  end

  # As text, as a number, as bytes, and null.
  def give(table)
    insert = "insert into #{table} (v) values (?)"
    CatalogueValues.texts.uniq.each do |text|
      values = [text, text.b, Integer(text, 10, exception: false), Float(text, exception: false)]
      values.reject! { |value| value.nil? || (Integer === value && value.bit_length > 63) }
      values.each { |value| @sqlite3.execute(insert, [value]) }
    end
    @sqlite3.execute("#{insert.sub("?", "null")}, (9e999), (-9e999)")
  end
end
