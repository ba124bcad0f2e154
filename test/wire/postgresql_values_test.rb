# frozen_string_literal: true

require "test_helper"
require "pg"
require "support/postgresql_wire"
require "support/servers"

# wire/postgresql/values*.c beside a real server: each value is asked for in text and in binary. The binary form
# has to be read as the text; where Heddle writes the binary form of a text, it has to be the same bytes.
class PostgreSQLValuesTest < Minitest::Test
  SETUP = <<~SQL
    set timezone to 'UTC'; set extra_float_digits to 1; create extension if not exists hstore;
    create extension if not exists ltree; create type pg_temp.pair as (a int, b text)
  SQL

  SAME_TEXT = {
    "bool" => %w[true false],
    "int2" => %w[0 -1 32767 -32768], "int4" => %w[0 2147483647 -2147483648],
    "int8" => %w[0 9223372036854775807 -9223372036854775808],
    "numeric" => %w[0 0.00 1 -1 10 100 1000 9999 10000 10001 1.5 1.50 -0.5 0.0001 0.00001 -0.000123450 12345.6789
      99999999.99999999 100000000 1e40 1e-40 123456789012345678901234567890.123456789 1e131071 1.1e-16382 NaN],
    "date" => ["2000-01-01", "1999-12-31", "2024-02-29", "1900-03-01", "0001-01-01", "0001-12-31 BC", "0045-03-15 BC",
      "4713-01-01 BC", "5874897-12-31", "infinity", "-infinity"],
    "timestamp" => ["2000-01-01", "1999-12-31 23:59:59.999999", "2024-02-29 12:34:56.7", "0001-12-31 01:02:03 BC",
      "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999", "infinity", "-infinity"],
    "time" => %w[00:00 23:59:59.999999 24:00 01:02:03.04],
    "timetz" => %w[12:00+00 12:34:56.789+05:30 01:02:03-08 00:00+15:59:59],
    "uuid" => %w[a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 00000000-0000-0000-0000-000000000000],
    "bit varying" => ["", "1", "10101010", "101010101", "0"], "bit(5)" => ["10101"],
    "jsonb" => ['{"a": [1, null]}', "3"], "ltree" => ["a.b.c", ""],
    "macaddr" => ["08:00:2b:01:02:03"], "macaddr8" => ["08:00:2b:01:02:03:04:05"],
    "point" => ["(1.5,-2)"], "line" => ["{1,2,-3}"], "lseg" => ["[(1,2),(3,4)]"], "box" => ["(3,4),(1,2)"],
    "circle" => ["<(1,2),3>"], "path" => ["[(1,2),(3,4)]", "((1,2),(3,4),(5,6))"], "polygon" => ["((1,2),(3,4),(5,6))"],
    "int4[]" => ["{}", "{1,2,NULL}", "{{1,2},{3,4}}", "{{{1,2,3}},{{4,5,6}}}", "[0:1]={7,8}",
      "[-1:0][2:2]={{1},{NULL}}"],
    "text[]" => ["{a,NULL,bcdef}", "{{abc},{de}}"],
    "int4range" => ["empty", "[1,5)", "[1,)", "(,5)", "(,)"], "int4multirange" => ["{}", "{[1,3),[5,)}"],
    "pair" => ["(1,abc)", "(,)"], "hstore" => ['"a"=>"1", "bc"=>NULL', ""],
    "tsvector" => ["'a':1A 'b':2B,3C,4", "'cat' 'dog':16383", ""]
  }.freeze
  WRITTEN = %w[numeric uuid macaddr bit].freeze
  WAYS = Hash.new { |_, type| type }.merge("bit varying" => "bit", "bit(5)" => "bit", "macaddr8" => "macaddr",
    "int4[]" => "array", "text[]" => "array", "int4range" => "range", "int4multirange" => "multirange",
    "pair" => "composite").freeze

  def setup
    @connection = PG.connect(Servers.postgresql.url)
    @connection.set_notice_receiver {}
    @connection.exec(SETUP)
  end

  def teardown
    @connection&.close
  end

  def test_each_type_is_read_as_the_server_writes_it_as_text
    SAME_TEXT.each do |type, values|
      values.each do |value|
        text, bytes = both("$1::text::#{type}", value)
        text = {"1e131071" => "1#{"0" * 131071}"}.fetch(value, text)
        assert_equal text, PostgreSQLWire.ask("value_#{WAYS[type]}", bytes), "#{type} #{value}"
        assert_written type, text, bytes
      end
    end
  end

  def test_floats
    ["0", "-0", "1.5", "1e300", "5e-324", "0.1", "NaN", "Infinity", "-Infinity"].each do |value|
      _, bytes = both("$1::text::float8", value)
      text = PostgreSQLWire.ask("value_float8", bytes)
      assert_equal bytes.unpack1("G"), Float(text) unless /[a-z]{3}/i.match?(value)
    end
    _, bytes = both("$1::text::float4", "0.1")
    assert_equal "0.100000001", PostgreSQLWire.ask("value_float4", bytes)
  end

  def test_intervals
    expected = {"1 year 2 mons -3 days 04:05:06.7" => "14 -3 14706700000", "-00:00:00.000001" => "0 0 -1"}
    expected.each do |value, parts|
      _, bytes = both("$1::text::interval", value)
      assert_equal parts, PostgreSQLWire.ask("value_interval", bytes)
    end
  end

  def test_addresses
    {"inet '192.168.0.1/24'" => "4 c0a80001/24 inet", "cidr '10.0.0.0/8'" => "4 0a000000/8 cidr",
     "inet '::1'" => "6 00000000000000000000000000000001/128 inet"}.each do |sql, expected|
      _, bytes = both(sql)
      assert_equal expected, PostgreSQLWire.ask("value_inet", bytes)
    end
  end

  def test_random_numbers_dates_and_times
    random = Random.new(seed = Random.new_seed)
    whole = -> { random.rand(-10**random.rand(1..40)..10**30) }
    numerics = Array.new(200) { "#{whole.call}.#{random.rand(10**random.rand(1..30))}" }
    timestamps = Array.new(200) { "#{random.rand(1..9999).to_s.rjust(4, "0")}-01-01" }
    later = "make_interval(days => #{random.rand(366)}, secs => #{random.rand(86400)}.25)"
    {"numeric" => numerics, "timestamp" => timestamps}.each do |type, values|
      sql = "select x::#{type} #{"+ #{later}" if type == "timestamp"} from unnest($1::text[]) x"
      text, bytes = [0, 1].map { |format| @connection.exec_params(sql, [array(values)], format).column_values(0) }
      text.zip(bytes) do |one, other|
        assert_equal one, PostgreSQLWire.ask("value_#{type}", other), "seed #{seed}"
        assert_written type, one, other
      end
    end
  end

  # What is written, the server reads as the text that it reads itself.
  def test_texts_of_numbers
    ["1e5", "1.50e1", "150e-3", "+7", ".5", "5.", "-.5E-3", "0e7", "000123.4500", "1E-16383", "nan"].each do |text|
      _, bytes = both("$1::text::numeric", text)
      assert_equal bytes.unpack1("H*"), PostgreSQLWire.ask("put_numeric", text), text
    end
    ["", "-", ".", "1e", "1e+", "1.2.3", "0x1", "1 ", "--1", "infinit", "e5"].each do |text|
      assert_equal "malformed", PostgreSQLWire.ask("put_numeric", text), text
    end
    %w[1e131072 1e-16384 1e999999999999].each do |text|
      assert_equal "out of range", PostgreSQLWire.ask("put_numeric", text)
    end
  end

  # Their scale has no meaning: the server's is 32, ours 0.
  def test_infinite_numbers
    %w[Infinity -Infinity].each do |text|
      _, bytes = both("$1::text::numeric", text)
      assert_equal(text, PostgreSQLWire.ask("value_numeric", bytes))
      [text, text.downcase, text[/-?Inf/]].each do |written|
        value = {value: [PostgreSQLWire.ask("put_numeric", written)].pack("H*"), format: 1, type: 1700}
        assert_equal text, @connection.exec_params("select $1", [value]).getvalue(0, 0)
      end
    end
  end

  def test_texts_of_addresses
    {"uuid" => ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}"],
     "macaddr" => %w[08:00:2B:01:02:03 08-00-2b-01-02-03 08002b010203]}.each do |type, texts|
      texts.each do |text|
        _, bytes = both("$1::text::#{type}", text)
        assert_equal bytes.unpack1("H*"), PostgreSQLWire.ask("put_#{type}", text), text
        [text.chop, "#{text}0", text.tr("0", "g")].each do |wrong|
          assert_equal "malformed", PostgreSQLWire.ask("put_#{type}", wrong), wrong
        end
      end
    end
  end

  # pgvector's is not installed everywhere: as its vector_send has it.
  def test_vectors
    bytes = [3, 0].pack("nn") + [1.5, -2, 0.25].pack("g*")
    assert_equal "[1.5,-2,0.25]", PostgreSQLWire.ask("value_vector", bytes)
  end

  # No memory is taken for a count (of an array, a row, a string) that is larger than the bytes that follow.
  def test_counts_larger_than_the_bytes_that_follow
    claims = {
      "array" => [1, 0, 23, 100_000_000, 1].pack("N*"), "multirange" => [1 << 30].pack("N"),
      "composite" => [9].pack("N"), "hstore" => [-1].pack("l>"), "tsvector" => [5].pack("N"), "bit" => [64].pack("N"),
      "polygon" => [1 << 28].pack("N"), "numeric" => [9, 0, 0, 0].pack("n*"), "range" => "\2",
      "vector" => [9, 0].pack("nn")
    }
    claims.each { |type, bytes| assert_match(/refused\z/, PostgreSQLWire.ask("value_#{type}", bytes), type) }
  end

  private

  def both(sql, *values)
    Array.new(2) { |format| @connection.exec_params("select #{sql}", values, format).getvalue(0, 0) }
  end

  def assert_written(type, text, bytes)
    way = WAYS[type]
    assert_equal bytes.unpack1("H*"), PostgreSQLWire.ask("put_#{way}", text), "#{type} #{text}" if WRITTEN.include?(way)
  end

  def array(values) = PG::TextEncoder::Array.new.encode(values)
end
