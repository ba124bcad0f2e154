# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"

# COPY in and out, on a real PostgreSQL: in threads and in tasks.
module PostgreSQLCopySuite
  include StreamHelpers
  include PostgreSQLHelpers

  # A connection to the tests' PostgreSQL.
  def with_db(**options)
    server = postgresql
    work = lambda do
      db = Heddle::DB.connect(server.url, timeout: 20, **options)
      yield db
    ensure
      db&.close
    end
    Fiber.scheduler ? work.call : in_host(&work)
  end

  def with_table(columns = "n int, t text")
    with_db do |db|
      db.exec("create temporary table c (#{columns})")
      yield db
    end
  end

  def rows(db) = db.query("select * from c order by 1").rows

  def assert_usable(db) = assert_equal(7, db.query_value("select 7"))

  ROWS = [[1, "eins"], [2, nil], [3, ""], [4, "\t\n\r\\ \\N \b\f\v"], [5, "ünï \u{1f600}"], [6, "\\."], [7, "a\"b,c"]]
    .freeze

  ["", " with (format csv)", " csv", " with (format csv, delimiter ';', null 'NULL', quote '''', escape '\\')",
    " with (delimiter '|', null 'nix')", " with delimiter as E'\\x01' null as ''''"].each_with_index do |form, index|
    define_method(:"test_rows_in_and_out_#{index}") do
      with_table do |db|
        count = db.copy_in("copy c from stdin#{form}") { |copy| ROWS.each { |row| copy << row } }
        assert_equal ROWS.size, count
        assert_equal ROWS, rows(db)
        out = []
        assert_equal count, db.copy_out("copy c to stdout#{form}") { |row| out << row }
        assert_equal ROWS.map { |n, t| [n.to_s, t] }, out
        assert_usable(db)
      end
    end
  end

  # Each would make the client write another form than the server reads, and so other rows.
  {
    "where t <> 'csv'" => nil, "where t <> 'binary'" => nil, "with (null nix) where t <> 'quote'" => "nix",
    "with (null 0)" => "0", "with (null $$a'b$$, delimiter $x$;$x$)" => "a'b",
    "(null \"Nix\", format \"csv\")" => "Nix",
    "(format $$csv$$, \"null\" 'a', force_null (n, t), delimiter '|')" => "a",
    "using delimiters ';' with null as 'b'" => "b", "csv null 'c' force not null n quote '~'" => "c",
    "(delimiter ',', encoding 'utf-8')" => nil
  }.each_with_index do |(form, null), index|
    define_method(:"test_the_form_that_the_statement_says_#{index}") do
      with_table("n text, t text") do |db|
        rows = [["a;,|\t~\"", "x"], ["N", nil], ["csv", "0"]]
        rows << ["y", null] if null && !form.include?("csv") # read as NULL where nothing marks it as text
        count = db.copy_in("copy c from stdin #{form}") { |copy| rows.each { |row| copy << row } }
        expected = form.include?("where") ? rows.select(&:last) : rows
        assert_equal expected.size, count
        assert_equal expected, db.query("select * from c").rows
      end
    end
  end

  def test_forms_that_cannot_be_read
    with_table("t text, format text, \"null\" text") do |db|
      ["(null U&'\\0041')", "(null 'a'\n'b')", "null 'a'\n'b'", "(delimiter)"].each do |form|
        error = assert_raises(ArgumentError) { db.copy_in("copy c from stdin #{form}") { flunk } }
        assert_match(/one string/, error.message)
      end
      sql = "copy c from stdin (format csv, force_null (format, \"null\"))"
      assert_equal(1, db.copy_in(sql) { |copy| copy << ["a", "", nil] })
    end
  end

  def test_a_copy_with_an_encoding_option
    with_table("t text") do |db|
      into, out = "copy c from stdin (encoding 'latin1')", "copy c to stdout encoding 'latin1'"
      assert_match(/encoding/, assert_raises(ArgumentError) { db.copy_in(into) { |copy| copy << ["\u00e4"] } }.message)
      assert_equal(1, db.copy_in(into) { |copy| copy.write("\xe4\n".b) })
      assert_equal "\u00e4", db.query_value("select t from c")
      assert_match(/encoding/, assert_raises(ArgumentError) { db.copy_out(out) { flunk } }.message)
      assert_equal(1, db.copy_out(out, raw: true) { |line| assert_equal "\xe4\n".b, line })
      assert_usable(db)
    end
  end

  # Values by the types of the columns are in postgresql_binary_copy_test.rb. A library that reads the server's texts
  # itself, for which no types are asked, gives and gets the server's own bytes.
  def test_rows_of_the_binary_form
    rows = [[[1].pack("N"), "eins"], [[2].pack("N"), nil]]
    ["copy c from stdin (format binary)", "copy binary c from stdin"].each do |into|
      with_table do |db|
        assert_equal(2, db.copy_in(into) { |copy| rows.each { |row| copy << row } })
        assert_equal [[1, "eins"], [2, nil]], rows(db)
        typed, bytes = [false, true].map do |textual|
          db.driver.textual = textual
          [].tap { |copied| assert_equal(2, db.copy_out("copy c to stdout binary") { |row| copied << row }) }
        end
        assert_equal [[1, "eins"], [2, nil]], typed
        assert_equal rows, bytes
        assert_equal [Encoding::BINARY], bytes.flatten.compact.map(&:encoding).uniq
        assert_equal(0, db.copy_in(into) { nil })
        assert_equal(2, db.copy_in(into) { |copy| rows.each { |row| copy << row } })
        error = assert_raises(TypeError) { db.copy_in(into) { |copy| copy << [1, "x"] } }
        assert_match(/value 1 .* Integer: .* text form/, error.message)
        db.driver.textual = false
        assert_equal [[1, "eins"], [1, "eins"], [2, nil], [2, nil]], rows(db)
        assert_usable(db)
      end
    end
  end

  def test_the_server_s_bytes_from_one_copy_into_another
    %w[text csv binary].each do |format|
      with_table do |db|
        db.exec("insert into c select n, repeat('x', n) from generate_series(1, 2000) as n")
        db.exec("create temporary table d (like c)")
        pieces = []
        db.copy_out("copy c to stdout (format #{format})", raw: true) { |bytes| pieces << bytes }
        count = db.copy_in("copy d from stdin (format #{format})") do |copy|
          pieces.join.b.scan(/.{1,30001}/mn) { |piece| copy.write(piece) }
        end
        assert_equal 2000, count
        assert_equal 0, db.query_value("select count(*) from (table c except table d) as x")
      end
    end
  end

  FLOATS = [0.0, -0.0, 1.0, -3.0, 0.5, 1e-4, 9.9e-5, 123.456, 0.1 + 0.2, 1 / 3.0, 1e9, 123_456_789.123456, 1e14,
    999_999_999_999_999.0, 1e15, 2.0**53, 1e16, 1e22, 1e300, 5e-324, Float::NAN, -Float::INFINITY].freeze

  # Each in the shortest form that is the same number when it is read: that of Float#to_s.
  def test_floats
    random = Random.new(7)
    some = Array.new(3000) do |n|
      float = random.rand * 10.0**random.rand(-6..16) * [1, -1].sample(random: random)
      n.odd? ? float.round(random.rand(0..10)) : float
    end
    with_table("n int, t text, f float8") do |db|
      floats = FLOATS + some
      ["", " (format csv)", " (format csv, delimiter '.')"].each do |form|
        db.exec("truncate c")
        db.copy_in("copy c from stdin#{form}") { |copy| floats.each_with_index { |f, n| copy << [n, f, f] } }
        text, read = db.query("select t, f from c order by n").rows.transpose
        assert_equal floats.map(&:to_s), text
        assert_equal floats.map { |float| [float].pack("G") }, read.map { |float| [float].pack("G") }
      end
    end
  end

  def test_values_of_all_classes
    columns = "i bigint, f float8, b bool, n numeric, t timestamptz, d date, a int[], j json, y bytea, s text"
    with_table(columns) do |db|
      row = [2**40, 0.1, true, BigDecimal("1.50"), Time.utc(2024, 2, 29, 1, 2, 3.5r), Date.new(2024, 2, 29), [1, nil],
        {"a" => "\t"}, "\0\\\xff".b, :symbol]
      latin = [2**70, Float::INFINITY, false, 12, nil, nil, nil, nil, nil, "ü".encode("ISO-8859-1")]
      error = assert_raises(Heddle::DB::ServerError) do
        db.copy_in("copy c from stdin") { |copy| copy << row << latin }
      end
      assert_equal "22003", error.sql_state # 2**70 is no bigint
      latin[0] = -3
      assert_equal 2, db.copy_in("copy c from stdin") { |copy| copy << row << latin }
      found = db.query("select i, f, b, n, t, d, a::text, j::text, y, s from c order by i desc").rows
      assert_equal [2**40, 0.1, true, BigDecimal("1.5"), row[4], row[5], "{1,NULL}", "{\"a\":\"\\t\"}", row[8],
        "symbol"], found[0]
      assert_equal [-3, Float::INFINITY, false, 12, nil, nil, nil, nil, nil, "ü"], found[1]
    end
  end

  # A COPY says no type: the text of a Duration must be one of a time and of an interval.
  def test_durations
    with_table("t time, i interval, ts time[], v interval[]") do |db|
      texts = %w[00:00:00 12:34:56.5 23:59:59.999999 24:00:00]
      row = texts.map { |text| Heddle::DB::Duration.parse(text) }
      long = Heddle::DB::Duration.new(-(2**31 + 5) * 3_600_000_000)
      count = db.copy_in("copy c from stdin") do |copy|
        row.each { |duration| copy << [duration, duration, row, [duration, long]] }
      end
      assert_equal 4, count
      found = db.query("select t, i, ts, v[1], extract(epoch from v[2])::bigint from c").rows
      assert_equal row, found.map(&:first)
      assert_equal row.map(&:microseconds), found.map { |_, interval| interval.microseconds }
      assert_equal [row] * 4, found.map { |values| values[2] }
      assert_equal [[row[1].microseconds, long.microseconds / 1_000_000]], found[1..1].map { |values|
        [values[3].microseconds, values[4]]
      }
    end
  end

  def test_rows_that_cannot_be_sent
    with_table do |db|
      count = db.copy_in("copy c from stdin") do |copy|
        copy << [1, "a"]
        assert_match(/3 values, and the COPY 2 columns/, assert_raises(ArgumentError) { copy << [1, 2, 3] }.message)
        assert_raises(TypeError) { copy << [2, Object.new] }
        assert_raises(TypeError) { copy << "text" }
        copy << [3, "b"]
      end
      assert_equal [2, [[1, "a"], [3, "b"]]], [count, rows(db)]
      assert_equal 1, db.copy_in("copy c (t) from stdin") { |copy| copy << ["only"] }
    end
  end

  # The server leaves the first line out, whatever it is.
  def test_rows_of_a_copy_with_a_header
    with_table do |db|
      ["with (format csv, header)", "csv header", "with (header true, format csv)", "with (format csv, header 'on')"]
        .each do |form|
          sql = "copy c from stdin #{form}"
          assert_raises(ArgumentError, form) { db.copy_in(sql) { |copy| copy << [1, "one"] } }
          assert_equal 2, db.copy_in(sql) { |copy| copy.write("n,t\n") && copy << [1, "one"] << [2, "two"] }
        end
      ["with (format csv, header false)", "csv force not null t", "with (format csv, header off, force_null (t))"]
        .each { |form| assert_equal 1, db.copy_in("copy c from stdin #{form}") { |copy| copy << [3, "three"] } }
      db.exec("create temporary table headed (header text)")
      assert_equal 1, db.copy_in("copy headed from stdin csv force not null header") { |copy| copy << ["x"] }
      assert_equal 11, db.query_value("select count(*) from c")
    end
  end

  def test_an_error_of_the_block
    with_table do |db|
      error = assert_raises(Errno::ENOENT) do
        db.copy_in("copy c from stdin") do |copy|
          copy << [1, "a"]
          File.read("/nowhere/at all")
        end
      end
      refute_kind_of Heddle::DB::Error, error
      assert_empty rows(db)
      assert_nil(db.copy_in("copy c from stdin") { |copy| break (copy << [1, "a"]) && nil })
      catch(:out) { db.copy_in("copy c from stdin") { |copy| throw :out if copy << [1, "a"] } }
      assert_empty rows(db)
      assert_usable(db)
    end
  end

  def test_an_error_of_the_server_stops_the_block
    with_table do |db|
      sent = 0
      error = assert_raises(Heddle::DB::ServerError) do
        db.copy_in("copy c from stdin") do |copy|
          copy << ["no number", "a"]
          loop { copy << [sent += 1, "x" * 1000] }
        end
      end
      assert_equal "22P02", error.sql_state
      assert_equal "copy c from stdin", error.sql
      assert_operator sent, :<, 100_000
      assert_raises(Heddle::DB::ServerError) { db.copy_in("copy missing from stdin") { flunk } }
      assert_raises(Heddle::DB::ServerError) { db.copy_out("copy missing to stdout") { flunk } }
      assert_empty rows(db)
      assert_usable(db)
    end
  end

  def test_a_refusal_that_the_block_rescues
    with_table do |db|
      assert_raises(Heddle::DB::ServerError) do
        db.copy_in("copy c from stdin") do |copy|
          copy << ["no number", "a"]
          200.times { copy << [1, "x" * 10_000] }
        rescue Heddle::DB::ServerError
          assert_raises(Heddle::DB::ServerError) { copy << [1, "a"] }
        end
      end
      assert_usable(db)
    end
  end

  def test_in_transactions
    with_table do |db|
      db.transaction { db.copy_in("copy c from stdin") { |copy| copy << [1, "a"] } }
      assert_raises(Heddle::DB::TransactionError) do
        db.transaction do
          assert_raises(Heddle::DB::ServerError) { db.copy_in("copy c from stdin") { |copy| copy << ["x", "a"] } }
          db.query("select 1")
        end
      end
      db.transaction do
        catch(:out) { db.transaction { db.copy_in("copy c from stdin") { throw :out } } }
        db.copy_in("copy c from stdin") { |copy| copy << [2, "b"] }
      end
      assert_equal [[1, "a"], [2, "b"]], rows(db)
    end
  end

  def test_a_deadline_in_the_block
    with_table do |db|
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.05) { db.copy_in("copy c from stdin") { |copy| copy << [1, "a"] && sleep } }
      end
      assert_empty rows(db)
      assert_usable(db)
    end
  end

  def test_other_requests_in_the_block
    with_table do |db|
      kept = nil
      db.copy_in("copy c from stdin") do |copy|
        kept = copy
        assert_raises(Heddle::DB::Busy) { db.query("select 1") }
        refute_predicate db, :healthy?
      end
      db.query("insert into c values (1, 'a')")
      db.copy_out("copy c to stdout") { assert_raises(Heddle::DB::Busy) { db.query("select 1") } }
      assert_raises(Heddle::DB::StatementClosed) { kept << [1, "a"] }
      assert_raises(Heddle::DB::StatementClosed) { kept.write("a") }
      assert_predicate db, :healthy?
    end
  end

  # Ruby lets another thread run between the server's answer and the first row.
  def test_another_thread_uses_the_connection_behind_the_answer
    db = Heddle::DB.connect(postgresql.url, timeout: 20)
    db.exec("create temporary table c (n int, t text)")
    trace = TracePoint.new(:return) do |point|
      next unless point.method_id == :start_copy

      Thread.new { assert_raises(Heddle::DB::Busy) { db.query("select 1") } }.join
    end
    trace.enable(target_thread: Thread.current) do
      assert_equal 1, db.copy_in("copy c from stdin") { |copy| copy << [1, "a"] }
      assert_equal 1, db.copy_out("copy c to stdout") { |n, t| assert_equal %w[1 a], [n, t] }
    end
    assert_usable(db)
  ensure
    db&.close
  end

  # Statements that GC frees meanwhile must not put their Close into the data.
  def test_statements_that_are_closed_meanwhile
    with_table do |db|
      statements = Array.new(100) { |i| db.prepare("select #{i}") }
      db.copy_in("copy c from stdin") do |copy|
        50_000.times do |i|
          copy << [i, "x"]
          statements.pop&.close
        end
      end
      assert_equal 50_000, db.query_value("select count(*) from c")
    end
  end

  # Their Close goes ahead of the COPY, and is answered ahead of it.
  def test_statements_that_were_closed_before
    with_table do |db|
      db.prepare("select 1").close
      assert_equal(1, db.copy_in("copy c from stdin") { |copy| copy << [1, "x"] })
      2.times { db.prepare("select 1").close }
      assert_equal(1, db.copy_out("copy c to stdout") { |_| nil })
      db.prepare("select 1").close
      assert_raises(Heddle::DB::ServerError) { db.copy_in("copy missing_table from stdin") { |_| nil } }
      assert_usable(db)
    end
  end

  def test_a_block_that_leaves_copy_out
    with_db do |db|
      first = db.copy_out("copy (select generate_series(1, 10000000)) to stdout") { |row| break row }
      assert_equal ["1"], first
      assert_predicate db, :closed?
    end
    with_db do |db|
      assert_equal ["1"], db.copy_out("copy (select 1) to stdout") { |row| break row }
    end
  end

  def test_an_error_in_the_middle_of_copy_out
    with_db do |db|
      out = []
      error = assert_raises(Heddle::DB::ServerError) do
        db.copy_out("copy (select 1 / (n - 2000) from generate_series(1, 3000) as n) to stdout") { |row| out << row }
      end
      assert_equal ["22012", 1999], [error.sql_state, out.size]
      assert_usable(db)
    end
  end

  def test_copy_statements_in_other_methods_are_refused
    with_table do |db|
      [-> { db.query("copy c from stdin") }, -> { db.exec("/* x */ COPY c FROM STDIN") },
        -> { db.query("select 1; copy c from stdin") }, -> { db.each_row("copy c from stdin") { flunk } },
        -> { db.prepare("copy c from stdin").query }].each do |query|
        assert_match(/copy_in/, assert_raises(ArgumentError, &query).message)
      end
      assert_match(/copy_out/, assert_raises(ArgumentError) { db.query("copy c to stdout") }.message)
      assert_raises(ArgumentError) { db.copy_in("select 1") { flunk } }
      assert_raises(ArgumentError) { db.copy_in("copy c to stdout") { flunk } }
      assert_raises(ArgumentError) { db.copy_out("copy c to stdout; select 1") { flunk } }
      assert_raises(ArgumentError) { db.copy_in("copy c from stdin") }
      assert_usable(db)
    end
  end

  # A COPY that the look at the statement's text missed: the connection itself refuses it.
  def test_the_link_refuses_an_unexpected_copy
    with_table do |db|
      protocol = db.driver.instance_variable_get(:@protocol)
      db.exec("insert into c select n, 'x' from generate_series(1, 1000) as n")
      [protocol.run_text("copy c from stdin"), protocol.run_new("copy c from stdin", []),
        protocol.run_text("copy c to stdout"),
        protocol.run_new("copy c to stdout", []), protocol.run_text("copy c from stdin; select 1")].each do |error|
        assert_match(/copy_in/, error.message)
      end
      assert_predicate db, :healthy?
      assert_usable(db)
      protocol.send_new("copy c from stdin", [])
      protocol.send_new("select 1", [])
      assert_match(/pipeline/, assert_raises(Heddle::DB::ProtocolError) { protocol.receive }.message)
    end
  end

  def test_rows_that_are_larger_than_buffers
    with_table do |db|
      big = "a\tb" * 1_000_000
      assert_equal 3, db.copy_in("copy c from stdin") { |copy| 3.times { |i| copy << [i, big] } }
      sizes = []
      db.copy_out("copy c to stdout") { |_, text| sizes << (text == big) }
      assert_equal [true] * 3, sizes
      assert_usable(db)
    end
  end
end

BothModes.define("PostgreSQLCopy", PostgreSQLCopySuite)

class PostgreSQLCopyMemoryTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  # The rows of a table that is larger than the memory that is allowed go through.
  def test_memory_is_bounded
    db = Heddle::DB.connect(postgresql.url, timeout: 30)
    db.exec("create temporary table c (t text)")
    text = "x" * 10_000
    before = rss_kib
    db.copy_in("copy c from stdin") { |copy| 30_000.times { copy << [text] } }
    count = 0
    db.copy_out("copy c to stdout") { |_| count += 1 }
    assert_equal 30_000, count # 300 MB
    assert_operator rss_kib - before, :<, 192 << 10 # AddressSanitizer keeps freed memory for a while
  ensure
    db&.close
  end

  def test_other_databases_have_no_copy_and_no_notifications
    driver = Object.new.extend(Heddle::DB::Driver).tap { |made| def made.description = "A base" }
    db = Heddle::DB::Connection.new(driver, statement_cache: :never, statement_cache_size: 1)
    [-> { db.copy_in("x") {} }, -> { db.copy_out("x") {} }, -> { db.listen("x") }, -> { db.unlisten },
      -> { db.notify("x") }, -> { db.wait_for_notification }, -> { db.on_notice {} }].each do |call|
      error = assert_raises(Heddle::DB::Unsupported, &call)
      assert_match(/A base has no \w+: not every database can do that/, error.message)
    end
  end
end
