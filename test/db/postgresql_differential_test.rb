# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "heddle/db/postgresql"

# Random values of all types: the server's text of a value, and what the pg gem makes of its text and of its binary
# form, must agree with what Heddle reads. What Heddle reads and binds again, or sends by COPY in each of its forms,
# must be the same value for the server. ROWS=10000 for a thorough run.
class PostgreSQLDifferentialTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline ENV["ROWS"] ? 3600 : 60

  ROWS = Integer(ENV.fetch("ROWS", 25))
  # Rows that are copied at once.
  COPIED = 100
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
    "tstzrange" => ->(r) { bounds(r, days(r)) },
    "xid8" => ->(r) { r.rand(2**64).to_s },
    "name" => ->(r) { text(r) },
    "cidr" => ->(r) { r.rand(2).zero? ? "#{r.rand(256)}.#{r.rand(256)}.0.0/16" : "#{r.rand(65_536).to_s(16)}::/16" },
    "jsonpath" => ->(r) { "$.a[#{r.rand(100)}]" },
    "int4multirange" => ->(r) { multirange(r) { integers(r, 10**6) } },
    "datemultirange" => ->(r) { multirange(r) { days(r) } },
    "citext" => ->(r) { text(r) },
    "ltree" => ->(r) { Array.new(r.rand(1..5)) { "n#{r.rand(100)}" }.join(".") },
    "hstore" => ->(r) { Array.new(r.rand(4)) { |n| "#{quoted(text(r) + n.to_s)}=>#{quoted(text(r))}" }.join(",") },
    "color" => ->(r) { ["red", "grün", "a,b \"c\""][r.rand(3)] },
    "positive" => ->(r) { r.rand(1..10**6).to_s },
    "pair" => ->(r) { "(#{r.rand(100)},#{quoted(text(r))},#{quoted("{#{r.rand(9)},NULL}")})" }
  }.freeze

  # The server reads these in a form of their own, which no class of Ruby stands for: a Hash is JSON, and an Array of
  # Ranges an array.
  UNBOUND = /hstore|pair|multirange\[/
  RANGES_OF = {"int4multirange" => "int4range", "datemultirange" => "daterange"}.freeze
  ONE_WAY = /#{UNBOUND}|multirange/

  OWN_TYPES = <<~SQL.split(";\n")
    create extension hstore;
    create extension ltree;
    create extension citext;
    create type color as enum ('red', 'grün', 'a,b "c"');
    create domain positive as int check (value > 0);
    create type pair as (a int, b text, c int[]);
  SQL

  def self.quoted(text) = "\"#{text.gsub(/["\\]/) { |c| "\\#{c}" }}\""

  def self.multirange(random) = "{#{Array.new(random.rand(4)) { bounds(random, yield) }.join(",")}}"

  # @return [String] the name of the database with these types
  def self.database(server)
    @database ||= "differential_#{Process.pid}".tap do |name|
      DB.connect(server.url, timeout: 20).tap { |db| db.exec("create database #{name}") }.close
      db = DB.connect(server.url, database: name, timeout: 20)
      OWN_TYPES.each { |sql| db.exec(sql.delete_suffix(";")) }
      db.close
    end
  end

  def setup
    require "pg"
    @server = postgresql
    database = self.class.database(@server)
    @db = DB.connect(@server.url, database: database, timeout: 20)
    url = @server.url.sub(%r{[^/]+\z}, database)
    @pg = PG.connect(url)
    @pg.exec("set timezone = 'UTC'")
    @pg.type_map_for_results = PG::BasicTypeMapForResults.new(@pg)
      .tap { |map| map.default_type_map = PG::TypeMapAllStrings.new }
    @raw = PG.connect(url)
    @raw.exec("set timezone = 'UTC'")
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
    (0...ROWS).each_slice(COPIED) do |numbers|
      rows = numbers.map do |row|
        values = literals(random)
        check(values, hint = "SEED=#{seed} row #{row}").tap { |read| insert(row, values, read, hint) }
      end
      check_copies(numbers.zip(rows), "SEED=#{seed} rows #{numbers.first} to #{numbers.last}")
    end
  end

  private

  # ---- COPY

  def types = @types ||= literals(Random.new(0)).map(&:first)

  def columns = @columns ||= types.each_index.map { |index| "c#{index}" }

  # The binary form has no text for the server to read, and the server cannot be asked in the middle of a COPY.
  BYTES_ONLY = /\A(?:money|pair|tsvector)/

  # Those that a COPY in the binary form takes of Ruby's own values: also some that have no text.
  def binary = @binary ||= types.each_index.grep_v(->(index) { types[index].match?(BYTES_ONLY) })

  # Those that COPY takes of Ruby's own values.
  def sent = @sent ||= types.each_index.grep_v(->(index) { types[index].match?(ONE_WAY) })

  def insert(number, values, read, hint)
    unless @tables
      shape = "n int, #{columns.zip(types).map { |pair| pair.join(" ") }.join(", ")}"
      %w[source copied].each { |table| @db.exec("create temporary table #{table} (#{shape})") }
      @tables = true
    end
    texts = types.map { |type| "?::text::#{type}" }
    @db.exec("insert into source values (?, #{texts.join(", ")})", number, *values.map(&:last))
    assert_equal types.size, read.size, hint
  end

  def check_copies(rows, hint)
    ["", " (format csv)"].each { |form| check_written(rows, form, "#{hint}, COPY#{form}") }
    check_written_in_binary(rows, "#{hint}, COPY in binary")
    %w[text csv binary].each { |form| check_passed_on(form, "#{hint}, COPY in #{form}") }
    @db.exec("truncate source")
  end

  # Values that Heddle has read, and the texts that a COPY out gives of them.
  def check_written(rows, form, hint)
    names = sent.map { |index| columns[index] }.join(", ")
    count = @db.copy_in("copy copied (n, #{names}) from stdin#{form}") do |copy|
      rows.each { |number, values| copy << [number, *values.values_at(*sent)] }
    end
    assert_equal rows.size, count, hint
    assert_same_rows(sent, hint)

    texts = columns.each_index.map { |index| text_of(index) }
    expected = @db.query("select n::text, #{texts.join(", ")} from source order by source.n").rows
    written = []
    @db.copy_out("copy (select * from source order by n) to stdout#{form}") { |row| written << row }
    expected.zip(written) do |texts, row|
      wrong = texts.each_index.find { |index| texts[index] != row[index] } # quicker than so many assertions
      assert_nil wrong, wrong && "#{["n", *types][wrong]}: #{texts[wrong]}, written as #{row[wrong]}: #{hint}"
    end
  end

  # What queries have read, and what a COPY reads of it.
  def check_written_in_binary(rows, hint)
    names = ["n", *columns.values_at(*binary)].join(", ")
    expected = rows.map { |number, values| [number, *values.values_at(*binary)] }
    count = @db.copy_in("copy copied (#{names}) from stdin (format binary)") do |copy|
      expected.each { |row| copy << row }
    end
    assert_equal rows.size, count, hint
    read = []
    @db.copy_out("copy (select #{names} from copied order by n) to stdout (format binary)") { |row| read << row }
    expected.zip(read) do |wanted, row|
      wrong = wanted.each_index.find { |index| !same?(wanted[index], row[index]) }
      assert_nil wrong, wrong && "#{types[binary[wrong - 1]]}: #{wanted[wrong].inspect}, read as #{row[wrong].inspect}"
    end
    assert_same_rows(binary, hint)
  end

  # NaN is not equal to itself.
  def same?(one, other) = one == other || one.inspect == other.inspect

  # COPY writes what a type's output function returns: some types have a cast to text that returns another text.
  def text_of(index) = "case num_nonnulls(#{columns[index]}) when 1 then format('%s', #{columns[index]}) end"

  # The server's own bytes, as rows and as they come.
  def check_passed_on(form, hint)
    out, into = "copy source to stdout (format #{form})", "copy copied from stdin (format #{form})"
    unless form == "binary" # see check_written_in_binary
      rows = []
      @db.copy_out(out) { |row| rows << row }
      @db.copy_in(into) { |copy| rows.each { |row| copy << row } }
      assert_same_rows(types.each_index.to_a, hint)
    end
    pieces = []
    @db.copy_out(out, raw: true) { |bytes| pieces << bytes }
    @db.copy_in(into) { |copy| pieces.each { |bytes| copy.write(bytes) } }
    assert_same_rows(types.each_index.to_a, "#{hint}, raw")
  end

  # Not all types can be compared.
  def assert_same_rows(indexes, hint)
    differ = indexes.map do |index|
      one, other = ["s", "t"].map { |table| "#{table}.#{columns[index]}#{"::text" unless exact?(types[index])}" }
      "count(*) filter (where #{one} is distinct from #{other})"
    end
    counts = @db.query_row("select count(*), #{differ.join(", ")} from source s join copied t using (n)")
    assert_equal @db.query_value("select count(*) from source"), counts.shift, hint
    wrong = indexes.zip(counts).reject { |_, count| count.zero? }.map { |index, _| types[index] }
    assert_empty wrong, hint
  ensure
    @db.exec("truncate copied")
  end

  # Their texts have digits that a BigDecimal does not keep.
  def exact?(type) = type.match?(/\A(?:numeric|numrange|money)/)

  # ---- queries

  def check(literals, hint)
    casts = literals.each_index.map { |i| "$#{i + 1}::text::#{literals[i][0]}" }
    texts = casts.map { |cast| "(#{cast})::text" }
    values = literals.map(&:last)
    server = @raw.exec_params("select #{texts.join(", ")}", values).values[0]
    heddle = @db.query_row("select #{casts.map { |cast| cast.sub(/\$\d+/, "?") }.join(", ")}", *values)
    bound = literals.each_index.reject { |index| literals[index][0].match?(UNBOUND) }
    back = bound.zip(@db.query_row("select #{bound.map { |index| bound_again(literals[index][0]) }.join(", ")}",
      *heddle.values_at(*bound))).to_h
    [0, 1].each do |format|
      pg = @pg.exec_params("select #{casts.join(", ")}", values, format).values[0]
      pg.each_with_index { |value, index| compare(value, heddle[index], literals[index], "#{hint}, format #{format}") }
    end
    server.each_with_index do |text, index|
      next unless back.key?(index)
      next assert_nil(back[index], hint) if text.nil?

      assert_equal canonical(text, literals[index][0]), canonical(back[index], literals[index][0]),
        "#{literals[index].inspect}, read as #{heddle[index].inspect}: #{hint}"
    end
    heddle
  end

  def bound_again(type)
    return "(?::numeric#{type[4..]}::text#{type[4..]}::#{type})::text" if type.start_with?("xid8") # no cast of a number
    return "(?::#{type})::text" unless (range = RANGES_OF[type])

    "#{type}(variadic ?::#{range}[])::text"
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
    when Date then value.to_s # pg's are of the Gregorian calendar, before 1582 too
    when String then value.b
    else value
    end
  end
end
