# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "heddle/db/postgresql"

# Random values of all types: the server's text of a value, and what the pg gem makes of its text and of its binary
# form, must agree with what Heddle reads; what Heddle reads and binds again must be the same value for the server.
# ROWS=10000 for a thorough run.
class PostgreSQLDifferentialTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline ENV["ROWS"] ? 3600 : 60

  ROWS = Integer(ENV.fetch("ROWS", 25))
  DB = Heddle::DB
  LETTERS = ["a", "B", "é", "漢", "😀", " ", "'", '"', "\\", ",", "{", "}", "(", ")", "\n", "\t", "NULL", ";", "%"].freeze

  def self.number(random, digits) = random.rand(10**random.rand(1..digits))

  def self.real(random, pack, bits)
    return %w[NaN Infinity -Infinity 0 -0][random.rand(5)] if random.rand(10).zero?

    [random.rand(2**bits)].pack("#{(bits == 32) ? "L" : "Q"}>").unpack1(pack).to_s
  end

  def self.small(random) = (random.rand(-1_000_000..1_000_000) / 1000.0).to_s

  def self.point(random) = "(#{small(random)},#{small(random)})"

  def self.points(random) = Array.new(random.rand(1..5)) { point(random) }.join(",")

  def self.text(random, most = 20) = Array.new(random.rand(most)) { LETTERS.sample(random: random) }.join

  def self.clock(random)
    format("%02d:%02d:%02d.%06d", random.rand(24), random.rand(60), random.rand(60), random.rand(1_000_000))
  end

  def self.moment(random) = "J#{random.rand(0..5_000_000)} #{clock(random)}"

  def self.numeric(random)
    return %w[NaN Infinity -Infinity][random.rand(3)] if random.rand(12).zero?

    "#{"-" if random.rand(2).zero?}#{number(random, 40)}#{".#{number(random, 30)}" if random.rand(2).zero?}"
  end

  def self.bounds(random, values)
    return "empty" if random.rand(10).zero?

    low, high = values
    low = "" if random.rand(6).zero?
    high = "" if random.rand(6).zero?
    "#{"[("[random.rand(2)]}#{low},#{high}#{"])"[random.rand(2)]}"
  end

  def self.integers(random, most) = Array.new(2) { random.rand(-most..most) }.sort

  def self.days(random) = Array.new(2) { random.rand(2_000_000..2_500_000) }.sort.map { |day| "J#{day}" }

  def self.address(random)
    return "#{Array.new(4) { random.rand(256) }.join(".")}/#{random.rand(33)}" if random.rand(2).zero?

    "#{Array.new(8) { random.rand(65_536).to_s(16) }.join(":")}/#{random.rand(129)}"
  end

  # The literal of a random value of each type.
  SCALARS = {
    "bool" => ->(r) { %w[t f][r.rand(2)] },
    "int2" => ->(r) { r.rand(-32_768..32_767).to_s },
    "int4" => ->(r) { r.rand(-2**31..2**31 - 1).to_s },
    "int8" => ->(r) { r.rand(-2**63..2**63 - 1).to_s },
    "oid" => ->(r) { r.rand(2**32).to_s },
    "float4" => ->(r) { real(r, "g", 32) },
    "float8" => ->(r) { real(r, "G", 64) },
    "numeric" => ->(r) { numeric(r) },
    "money" => ->(r) { format("%d.%02d", r.rand(-10**9..10**9), r.rand(100)) },
    "text" => ->(r) { text(r) },
    "varchar" => ->(r) { text(r) },
    "char(30)" => ->(r) { text(r, 6) },
    "bytea" => ->(r) { "\\x#{r.bytes(r.rand(40)).unpack1("H*")}" },
    "date" => ->(r) { "J#{r.rand(0..10_000_000)}" },
    "time" => ->(r) { clock(r) },
    "timetz" => ->(r) { "#{clock(r)}#{%w[+00 -08 +05:30 +01:02:03][r.rand(4)]}" },
    "timestamp" => ->(r) { moment(r) },
    "timestamptz" => ->(r) { moment(r) },
    "interval" => ->(r) { "#{r.rand(-5000..5000)} mons #{r.rand(-5000..5000)} days #{r.rand(-10**15..10**15)} us" },
    "uuid" => ->(r) { r.bytes(16).unpack1("H*") },
    "json" => ->(r) { %({"a": #{r.rand(1000)}, "é": [null, "x"]}) },
    "jsonb" => ->(r) { %({"a": #{r.rand(1000)}, "é": [null, "x"]}) },
    "xml" => ->(r) { "<a>#{r.rand(1000)}é</a>" },
    "inet" => ->(r) { address(r) },
    "macaddr" => ->(r) { r.bytes(6).unpack1("H*") },
    "macaddr8" => ->(r) { r.bytes(8).unpack1("H*") },
    "point" => ->(r) { point(r) },
    "line" => ->(r) { "{#{r.rand(1..9)},#{small(r)},#{small(r)}}" },
    "lseg" => ->(r) { "[#{point(r)},#{point(r)}]" },
    "box" => ->(r) { "#{point(r)},#{point(r)}" },
    "path" => ->(r) { r.rand(2).zero? ? "[#{points(r)}]" : "(#{points(r)})" },
    "polygon" => ->(r) { "(#{points(r)})" },
    "circle" => ->(r) { "<#{point(r)},#{r.rand(100)}>" },
    "bit(13)" => ->(r) { Array.new(13) { r.rand(2) }.join },
    "varbit" => ->(r) { Array.new(r.rand(40)) { r.rand(2) }.join },
    "pg_lsn" => ->(r) { format("%X/%X", r.rand(2**32), r.rand(2**32)) },
    "tsvector" => lambda do |r|
      Array.new(r.rand(5)) { |n| "'w#{r.rand(100)}''é\\\\':#{n + 1}#{%w[A B C D][r.rand(4)]}" }.join(" ")
    end,
    "int4range" => ->(r) { bounds(r, integers(r, 10**6)) },
    "int8range" => ->(r) { bounds(r, integers(r, 10**15)) },
    "numrange" => ->(r) { bounds(r, integers(r, 10**15).map { |n| "#{n}.5" }) },
    "daterange" => ->(r) { bounds(r, days(r)) },
    "tsrange" => ->(r) { bounds(r, days(r)) },
    "tstzrange" => ->(r) { bounds(r, days(r)) }
  }.freeze

  def setup
    require "pg"
    @server = postgresql
    @db = DB.connect(@server.url, timeout: 20)
    @pg = PG.connect(@server.url)
    @pg.exec("set timezone = 'UTC'")
    @pg.type_map_for_results = PG::BasicTypeMapForResults.new(@pg)
      .tap { |map| map.default_type_map = PG::TypeMapAllStrings.new }
    @raw = PG.connect(@server.url)
    @raw.exec("set timezone = 'UTC'")
  rescue LoadError => error
    skip "#{error.path} is not installed"
  end

  def teardown
    @db&.close
    @pg&.close
    @raw&.close
  end

  # As array_in reads it.
  def array(elements, type, delimiter = (type == "box") ? ";" : ",")
    "{#{elements.map { |text| text ? "\"#{text.gsub(/["\\]/) { |c| "\\#{c}" }}\"" : "NULL" }.join(delimiter)}}"
  end

  def literals(random)
    SCALARS.flat_map do |type, generate|
      # Only the values of an Array tell that it is one of boxes, which has another delimiter.
      nulls = (type == "box") ? 0 : 0.2
      elements = Array.new(random.rand(4)) { (random.rand < nulls) ? nil : generate.call(random) }
      nested = Array.new(2) { array(Array.new(2) { generate.call(random) }, type) }
      [[type, random.rand(10).zero? ? nil : generate.call(random)], ["#{type}[]", array(elements, type)],
        ["#{type}[]", "{#{nested.join((type == "box") ? ";" : ",")}}"]]
    end
  end

  def test_random_values_of_all_types
    random = Random.new(seed = ENV.fetch("SEED", Random.new_seed).to_i)
    ROWS.times do |row|
      check(literals(random), "SEED=#{seed} row #{row}")
    end
  end

  private

  def check(literals, hint)
    casts = literals.each_index.map { |i| "$#{i + 1}::text::#{literals[i][0]}" }
    texts = casts.map { |cast| "(#{cast})::text" }
    values = literals.map(&:last)
    server = @raw.exec_params("select #{texts.join(", ")}", values).values[0]
    heddle = @db.query_row("select #{casts.map { |cast| cast.sub(/\$\d+/, "?") }.join(", ")}", *values)
    back = @db.query_row("select #{literals.map { |type, _| "(?::#{type})::text" }.join(", ")}", *heddle)
    [0, 1].each do |format|
      pg = @pg.exec_params("select #{casts.join(", ")}", values, format).values[0]
      pg.each_with_index { |value, index| compare(value, heddle[index], literals[index], "#{hint}, format #{format}") }
    end
    server.each_with_index do |text, index|
      next assert_nil(back[index], hint) if text.nil?

      assert_equal canonical(text, literals[index][0]), canonical(back[index], literals[index][0]),
        "#{literals[index].inspect}, read as #{heddle[index].inspect}: #{hint}"
    end
  end

  # numeric has digits that a BigDecimal does not keep.
  def canonical(text, type)
    return text unless type.start_with?("numeric", "numrange", "money")

    text.gsub(/(\.\d*?)0+(?=\D|\z)/) { ($1 == ".") ? "" : $1 }
  end

  # pg leaves many types as text, or as bytes.
  def compare(pg, heddle, literal, hint)
    return if pg.is_a?(String) && !heddle.is_a?(String)
    return if pg.is_a?(Array) && pg.flatten.any?(String) && !heddle.flatten.any?(String)
    return if pg.is_a?(String) && pg.encoding == Encoding::BINARY && literal[0] != "bytea"
    return if pg.is_a?(IPAddr) # it loses the bits behind the network
    return if pg.is_a?(Hash) # json
    return if literal[0].match?(/json|inet|oid/) # pg reads an oid in binary as a signed number
    return assert_nil(heddle, hint) if pg.nil?
    return assert_predicate(heddle, :nan?, hint) if pg.respond_to?(:nan?) && pg.nan?

    single = literal[0].start_with?("float4")
    assert_equal normal(pg, single), normal(heddle, single), "#{literal.inspect}: #{hint}"
  end

  # In binary pg gives the float8 that a float4 is, and not the one with its digits.
  def normal(value, single)
    case value
    when Array then value.map { |element| normal(element, single) }
    when Float, BigDecimal
      return [value].pack("g") if single && !value.nan?

      value.nan? ? :nan : value.to_s
    when Date then value.jd
    when String then value.b
    else value
    end
  end
end
