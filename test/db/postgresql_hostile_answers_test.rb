# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_exchanges"

# Servers whose messages are well framed and wrong inside: values of another form than their type, texts that are none,
# rows of other columns, messages in another order. Each answer ends as a value or an error, never as a crash, a hang or
# a connection that goes on in the middle of an answer.
class PostgreSQLHostileAnswersTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLExchanges

  hard_deadline 60

  DB = Heddle::DB
  SEED = Integer(ENV.fetch("HEDDLE_STRESS_SEED") { rand(100_000) })
  ROUNDS = Integer(ENV.fetch("HEDDLE_STRESS", 300))

  # Answers each request with the next of the answers. The block gets a connection to the server.
  #
  # @param stay [Boolean] whether the server keeps the connection after the last answer, and waits for its requests
  def with_answers(*answers, stay: true, timeout: 10, **options)
    play = proc do |peer|
      peer.startup
      peer.raw(LOGIN)
      answers.each do |answer|
        break unless stay || peer.socket.wait_readable(0.02)

        end_of_request(peer)
        peer.raw(answer)
      end
      peer.read if stay
    end
    S.play(play) do |server|
      db = DB.connect(server.url, timeout: timeout, kill_queries: false, **options)
      yield db
    ensure
      db&.close
    end
  end

  def columns(*types) = M["T", [types.size].pack("n") + types.map { |type| PostgreSQLExchanges.column("c", type) }.join]

  def rows(*rows) = rows.map { |row| M["D", PostgreSQLExchanges.row(*row)] }.join

  def answer_of(type, *values) = M["1"] + M["2"] + columns(type) + rows(*values.zip) + DONE

  def refused(answer, pattern)
    with_answers(answer) do |db|
      error = assert_raises(DB::ProtocolError) { db.query("select 1") }
      assert_match(pattern, error.message)
      assert_predicate db, :closed?
    end
  end

  # One Sync has one answer: with another the next task would get what is not its own.
  def test_two_answers_for_one_of_statements_that_share_a_connection
    [M["Z", "I"] + answer_of(23, INT4), answer_of(23, INT4) + answer_of(23, INT4)].each do |answers|
      play = proc do |peer|
        peer.startup
        peer.raw(LOGIN)
        end_of_request(peer)
        peer.raw(answers)
        peer.read
      end
      S.play(play) do |server|
        Heddle.run do
          pool = DB::Pool.new(server.url, size: 1, multiplex: 4, timeout: 10, kill_queries: false)
          tasks = Array.new(3) do
            Heddle.spawn do
              pool.query_value("select 1")
            rescue DB::Error => error
              error.class
            end
          end
          assert_empty tasks.map(&:value) - [1, DB::ProtocolError, DB::ConnectionLost]
          assert_operator tasks.map(&:value).count(1), :<=, 2
          pool.close
        end
      end
    end
  end

  # ---- values

  INT4 = [1].pack("N")

  # OID => bytes that are no value of the type
  MALFORMED = {
    16 => ["", "\1\1"], 20 => [INT4], 21 => [INT4], 23 => ["\0\0\1", "\0" * 8, ""], 26 => [""], 700 => ["\0" * 8],
    701 => [INT4],
    1700 => ["", [3, 0, 0, 0, 1].pack("n5"), [1, 0, 0, 0, 10_000].pack("n5"), [0, 0, 0x1234, 0].pack("n4")],
    1082 => ["\0" * 3], 1083 => [INT4], 1114 => [INT4], 1184 => ["\0" * 9], 1186 => ["\0" * 15], 2950 => ["\0" * 15],
    869 => ["", [9, 32, 0, 4].pack("C4") + "abcd", [2, 99, 0, 4].pack("C4") + "abcd", [2, 32, 0, 16].pack("C4") + "ab"],
    600 => ["\0" * 15], 604 => [[1 << 30].pack("N")], 602 => [[1, 1 << 30].pack("CN")], 1560 => [[9, 1].pack("NC")],
    # arrays: too many dimensions, elements that do not come, a count beyond memory, another element's length
    1007 => ["", [7, 0, 23].pack("N3") + [1, 1].pack("N2") * 7, [1, 0, 23, 2, 1].pack("N5") + [4, 1].pack("N2"),
      [2, 0, 23, 1 << 30, 1, 1 << 30, 1].pack("N7"), [1, 0, 23, 1, 1].pack("N5") + [8, 1].pack("N2"),
      [1, 0, 23, 0xffffffff, 1].pack("N5")],
    3904 => ["\x40", "\0" + [4, 1].pack("N2"), "\0" + [4, 1, 1 << 30].pack("N3")],
    4451 => [[1 << 30].pack("N"), [1].pack("N")], 2249 => [[1 << 30].pack("N"), [1, 23, 4].pack("N3")]
  }.freeze

  def test_values_of_another_form
    MALFORMED.each do |type, values|
      values.each { |bytes| refused(answer_of(type, bytes.b), /malformed value/) }
    end
  end

  # A text of a server is UTF-8: what is not stays as it came, and is not valid.
  def test_texts_in_no_encoding
    with_answers(answer_of(25, "\xff\xfe", "a\0b", "\xed\xa0\x80", "")) do |db|
      texts = db.query_column("select 1")
      assert_equal ["\xff\xfe".b, "a\0b".b, "\xed\xa0\x80".b, "".b], texts.map(&:b)
      assert_equal [Encoding::UTF_8], texts.map(&:encoding).uniq
      assert_equal [false, true, false, true], texts.map(&:valid_encoding?)
    end
  end

  def test_another_version_of_a_binary_form
    with_answers(answer_of(3802, "\1[1")) { |db| assert_equal ["[1"], db.query_column("select 1") }
    ["", "\2[1]"].each { |bytes| refused(answer_of(3802, bytes), /malformed value/) }
  end

  # What begins a COPY that nobody asked for is refused as an error, and the session goes on.
  def test_a_copy_that_nobody_asked_for
    copy = M["H", [0, 1, 0].pack("Cn2")] + M["d", "1\n"] + M["c"] + M["C", "COPY 1\0"]
    with_answers(M["1"] + M["2"] + M["n"] + copy + S.ready, answer_of(23, INT4)) do |db|
      assert_match(/copy_out/, assert_raises(DB::ServerError) { db.query("select 1") }.message)
      assert_equal [1], db.query_column("select 1")
    end
  end

  def test_names_and_messages_in_no_encoding
    bad = "\xff\e[2J".b
    column = M["T", [1].pack("n") + "#{bad}\0".b + [0, 0, 25, -1, -1, 1].pack("NnNnNn")]
    notice = M["N", "SNOTICE\0VNOTICE\0C00000\0M".b + bad + "\0\0"]
    notified = M["A", [9].pack("N") + bad + "\0" + bad + "\0"]
    setting = M["S", "application_name\0".b + bad + "\0"]
    answer = notice + notified + setting + M["1"] + M["2"] + column + rows(["x"]) + M["C", "SELECT 1 ".b + bad + "\0"] +
      S.ready
    error = S.error("42601", "", severity: "ERROR").sub("M\0".b, "M".b + bad + "\0".b).then { |text| M["E", text[5..]] }
    with_answers(answer, error + S.ready) do |db|
      notices = []
      db.on_notice { |told| notices << told.message }
      result = db.query("select 1")
      assert_equal [["x"]], result.rows
      shown = [*notices, assert_raises(DB::ServerError) { db.query("select 2") }.message]
      shown.each do |text|
        assert_predicate text, :valid_encoding?
        refute_match(/[[:cntrl:]]/, text)
      end
      assert_equal 2, shown.size
      refute_predicate db, :closed?
    end
  end

  # ---- rows

  def test_rows_of_other_columns
    one = columns(23)
    head = M["1"] + M["2"]
    refused(head + one + rows([]) + DONE, /other columns/)
    refused(head + one + rows([INT4, INT4]) + DONE, /other columns/)
    refused(head + one + M["D", [1, 4].pack("nN") + "\0\0"] + DONE, /malformed (row|value)/)
    refused(head + one + M["D", [1, 4].pack("nN") + INT4 + "x"] + DONE, /malformed row/)
    refused(head + one + M["D", [1, -2].pack("nN")] + DONE, /malformed (row|value)/)
    refused(head + one + M["D", [65_535].pack("n")] + DONE, /row/)
    refused(head + M["n"] + rows([INT4]) + DONE, /nobody knows/)
    refused(head + M["T", [65_535].pack("n") + "a\0"] + DONE, /description/)
  end

  # The description of a kept statement's execution is not asked for again.
  def test_a_kept_statement_whose_rows_have_changed
    first = M["1"] + M["t", [0].pack("n")] + columns(23) + M["2"] + rows([INT4]) + DONE
    with_answers(first, M["2"] + rows([INT4, INT4]) + DONE, statement_cache: :always) do |db|
      assert_equal [1], db.query_column("select 1")
      assert_match(/other columns/, assert_raises(DB::ProtocolError) { db.query("select 1") }.message)
      assert_predicate db, :closed?
    end
  end

  def test_a_statement_that_is_prepared_without_an_answer
    with_answers(columns(23) + S.ready) do |db|
      assert_match(/did not answer a Parse/, assert_raises(DB::ProtocolError) { db.prepare("select 1") }.message)
      assert_predicate db, :closed?
    end
  end

  def test_a_portal_without_columns
    with_answers(BEGUN, M["1"] + M["2"] + M["n"] + M["s"] + S.ready("T")) do |db|
      error = assert_raises(DB::ProtocolError) { db.transaction { db.each_row("select 1") { flunk } } }
      assert_match(/columns that nobody knows/, error.message)
    end
  end

  # ---- another order

  PARTS = [M["1"], M["2"], M["n"], M["t", [0].pack("n")], M["t", [1, 23].pack("nN")], M["3"], M["s"], M["I"],
    M["T", [1].pack("n") + PostgreSQLExchanges.column("a", 23)], M["D", PostgreSQLExchanges.row([7].pack("N"))],
    M["D", PostgreSQLExchanges.row(nil)], M["C", "SELECT 1\0"], M["C", "COPY 1\0"], M["c"], M["d", "1\n"],
    M["G", [0, 1, 0].pack("Cn2")], M["H", [0, 1, 0].pack("Cn2")], M["W", [0, 1, 0].pack("Cn2")], M["V", [-1].pack("N")],
    M["A", [9].pack("N") + "ch\0pay\0"], M["N", "SNOTICE\0Mx\0\0"], M["S", "a\0b\0"], M["R", [0].pack("N")],
    M["K", [1, 2].pack("N2")], M["v", [196_608, 0].pack("N2")], S.error("42601", "x", severity: "ERROR"), S.ready,
    S.ready("T"), S.ready("E")].freeze

  # What the client asks does not matter to such a server. It closes the connection at the end, so that nothing waits.
  def test_messages_in_any_order
    random = Random.new(SEED)
    operations = KINDS.except(:notification, :several).values.map(&:first) << ->(db) { db.query("select 1; select 2") }
    outcomes = Hash.new(0)
    ROUNDS.times do |round|
      answers = Array.new(3) { Array.new(random.rand(1..8)) { PARTS.sample(random: random) }.join }
      operation = operations.sample(random: random)
      with_answers(*answers, stay: false) do |db|
        outcome = begin
          Heddle.deadline(5) { operation.call(db) }
          :value
        rescue DB::Error, ArgumentError, Heddle::DeadlineExceeded, IOError, SystemCallError => error
          error # ArgumentError: the server says that a statement has other parameters than the values
        end
        what = "seed #{SEED}, round #{round}: #{outcome.inspect}"
        at_rest = db.closed? || db.driver.at_rest?
        assert at_rest, what
        assert_predicate db, :closed?, what if outcome.is_a?(IOError)
        refute_kind_of Heddle::DeadlineExceeded, outcome, what
        outcomes[outcome.class] += 1
      end
    end
    assert_operator outcomes.fetch(DB::ProtocolError), :>, ROUNDS / 10, outcomes.inspect
  end

  # ---- one gigabyte

  # A length that never comes costs the time of the exchange, and no memory, wherever it stands.
  def test_lengths_of_a_gigabyte
    before = rss_kib
    giant = [0x3fffffff].pack("N")
    {["D", M["1"] + M["2"] + columns(25)] => Heddle::DeadlineExceeded, ["d", ""] => Heddle::DeadlineExceeded,
     ["T", ""] => DB::ProtocolError, ["t", ""] => DB::ProtocolError, ["C", ""] => DB::ProtocolError,
     ["E", ""] => DB::ProtocolError, ["N", ""] => DB::ProtocolError, ["A", ""] => DB::ProtocolError,
     ["S", ""] => DB::ProtocolError, ["Z", ""] => DB::ProtocolError, ["G", ""] => DB::ProtocolError}
      .each do |(type, head), expected|
      with_answers(head + type.b + giant + "x" * 100, timeout: 0.3) do |db|
        error = assert_raises(expected, type) { db.query("select 1") }
        assert_match(/no PostgreSQL server sends/, error.message) if expected == DB::ProtocolError
        assert_predicate db, :closed?
      end
    end
    assert_operator rss_kib - before, :<, 64 << 10
  end

  # A value of such a length inside a small row.
  def test_a_value_that_is_longer_than_its_row
    refused(M["1"] + M["2"] + columns(25) + M["D", [1, 0x3fffffff].pack("nN") + "x"] + DONE, /malformed (row|value)/)
  end
end
