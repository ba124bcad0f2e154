# frozen_string_literal: true

# bin/test: only with --all

require "test_helper"
require "support/mariadb_server"
require "support/mysql_server"
require "support/postgresql_server"
require "support/sqlite_helpers"
require "heddle/db"

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
  def same?(one, other) = one.class == other.class && (one == other || one.inspect == other.inspect)
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
  rescue LoadError => error
    skip "#{error.path} is not installed"
  end

  def teardown
    @db&.close
    @pg&.close
  end

  def test_values_of_all_types
    types = @db.query_list(TYPES)
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
