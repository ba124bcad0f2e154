# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/scripted_postgresql"

# An exchange is broken at every byte of the server's answers, from the log-in to the last row, in every way; and
# servers that violate the protocol. The result is the right answer, or an error, in time, and a closed connection.
class PostgreSQLPoisonTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers

  hard_deadline 120

  S = ScriptedPostgreSQL
  M = S.method(:message)
  TIME = 0.3

  def self.column(name, type, format = 1) = "#{name}\0".b + [0, 0, type, -1, -1, format].pack("NnNnNn")

  def self.row(*values)
    [values.size].pack("n") + values.map { |value| value ? [value.bytesize].pack("N") + value.b : [-1].pack("N") }.join
  end

  DESCRIPTION = M["T", [2].pack("n") + column("a", 23) + column("b", 25)]
  BOUND = M["1"] + M["2"] + DESCRIPTION
  ROWS = M["D", row([1].pack("N"), "eins")] + M["D", row([2].pack("N"), nil)]
  DONE = M["C", "SELECT 2\0"] + S.ready
  COPY = ->(type) { M[type, [0, 2, 0, 0].pack("Cn3")] }
  LOGIN = S.welcome.freeze

  # How each operation is asked for, what it returns, and what the server answers to each request.
  KINDS = {
    query: [->(db) { db.query("select a, b from t where c = ?", 3).rows }, [[1, "eins"], [2, nil]],
      [BOUND + ROWS + DONE]],
    several: [->(db) { db.query("select 1; select 2").following.affected_rows }, 2,
      [M["C", "INSERT 0 1\0"] + M["C", "INSERT 0 2\0"] + S.ready]],
    refusal: [lambda do |db|
      db.query("select 1")
    rescue Heddle::DB::ServerError => error
      error.sql_state
    end, "42601", [S.error("42601", "syntax", severity: "ERROR") + S.ready]],
    transaction: [->(db) { db.transaction { :value } }, :value,
      [M["C", "BEGIN\0"] + S.ready("T"), M["C", "COMMIT\0"] + S.ready]],
    copy_out: [->(db) { [].tap { |rows| db.copy_out("copy t to stdout") { |row| rows << row } } },
      [%w[1 eins], ["2", nil]],
      [COPY["H"] + M["d", "1\tei"] + M["d", "ns\n2\t\\N\n"] + M["c"] + M["C", "COPY 2\0"] + S.ready]],
    copy_in: [->(db) { db.copy_in("copy t from stdin") { |copy| copy << [1, "eins"] } }, 1,
      [COPY["G"], M["C", "COPY 1\0"] + S.ready]],
    notification: [->(db) { db.listen("ch").wait_for_notification.payload }, "pay",
      [M["1"] + M["2"] + M["n"] + M["C", "LISTEN\0"] + S.ready + M["N", "SNOTICE\0VNOTICE\0C00000\0Mx\0\0"] +
        M["A", [9].pack("N") + "ch\0pay\0"]]]
  }.freeze

  ENDINGS = {
    close: ->(peer) { peer.close },
    reset: lambda do |peer|
      peer.socket.setsockopt(:SOCKET, :LINGER, [1, 0].pack("ii"))
      peer.close
    end,
    stall: ->(_) { sleep }
  }.freeze

  # Reads what ends a request: also the end of COPY's data.
  def self.request(peer)
    loop { return if %w[S Q c f].include?(peer.read.first) }
  end

  def play(answers, offset, ending)
    lambda do |peer|
      peer.startup
      left = offset
      [LOGIN, *answers].each_with_index do |bytes, index|
        self.class.request(peer) if index > 0
        peer.raw(bytes[0, left])
        left -= bytes.bytesize
        break if left < 0
      end
      ENDINGS.fetch(ending).call(peer)
    end
  end

  def total(answers) = LOGIN.bytesize + answers.sum(&:bytesize)

  def ask(server, operation, timeout:)
    db = Heddle::DB.connect(server.url, timeout: timeout, kill_queries: false)
    [db, Heddle.deadline(timeout) { operation.call(db) }]
  rescue Heddle::DB::Error, Heddle::DeadlineExceeded, IOError, SystemCallError => error
    [db, error]
  end

  # One try: the right answer only when all of it arrived.
  def break_at(kind, offset, ending)
    operation, expected, answers = KINDS.fetch(kind)
    whole = offset == total(answers)
    server = S.new(&play(answers, offset, ending))
    db, outcome = ask(server, operation, timeout: (ending == :stall && !whole) ? TIME : 10)
    what = "#{kind}: #{ending} at #{offset} of #{total(answers)}: #{outcome.inspect}"
    if outcome.is_a?(Exception)
      refute whole, what
      assert_predicate db, :closed?, what if db && !idle_wait?(kind, offset, ending)
      assert_raises(IOError, what) { db.query("select 1") } if db&.closed?
    else
      assert_equal [expected, true], [outcome, whole], what
    end
    assert_empty server.errors
  ensure
    db&.close
    server&.close
  end

  # A deadline in a wait for a notification does no harm before the first byte of one.
  def idle_wait?(kind, offset, ending) = kind == :notification && ending == :stall

  KINDS.each_key do |kind|
    %i[close reset].each do |ending|
      define_method(:"test_#{ending}_in_#{kind}") do
        (0..total(KINDS[kind].last)).each { |offset| break_at(kind, offset, ending) }
      end
    end

    define_method(:"test_silence_in_#{kind}_in_tasks") do
      Heddle::FiberPool.new(50).map((0..total(KINDS[kind].last)).to_a) { |offset| break_at(kind, offset, :stall) }
    end
  end

  # ---- malicious servers

  def answer(operation, *answers)
    server = S.new(&play(answers, 1 << 40, :stall))
    db, outcome = ask(server, operation, timeout: 5)
    assert_kind_of Heddle::DB::ProtocolError, outcome
    assert_predicate db, :closed?
    outcome.message
  ensure
    db&.close
    server&.close
  end

  def query_answered(bytes) = answer(KINDS[:query][0], bytes)

  def test_messages_in_the_wrong_place
    assert_match(/nobody knows/, query_answered(M["1"] + ROWS))
    assert_match(/no place/, query_answered(BOUND + M["G", [0, 0].pack("Cn")].sub("G", "W")))
    assert_match(/no place|nobody had asked/, query_answered(BOUND + M["t", [0].pack("n")]))
    assert_match(/no PostgreSQL server sends/, query_answered("\0\0\0\0\4"))
    assert_match(/no PostgreSQL server sends/, query_answered("HTTP/1.1 200 OK\r\n\r\n"))
    assert_match(/state of the transaction/, query_answered(BOUND + ROWS + M["C", "SELECT 2\0"] + S.ready("?")))
  end

  def test_malformed_messages
    assert_match(/row/, query_answered(BOUND + M["D", self.class.row([1].pack("N"))]))
    assert_match(/row/, query_answered(BOUND + M["D", self.class.row([1].pack("N"), "x", "y")]))
    assert_match(/row/, query_answered(BOUND + M["D", [2, 4, 1, 1 << 30].pack("nNNN")]))
    assert_match(/description/, query_answered(M["1"] + M["2"] + M["T", [9].pack("n")]))
    assert_match(/end of a statement/, query_answered(BOUND + M["C", "SELECT 2"]))
  end

  def test_malformed_copies
    out = KINDS[:copy_out][0]
    into = KINDS[:copy_in][0]
    assert_match(/other columns/, answer(out, COPY["H"] + M["d", "1\n"]))
    assert_match(/other columns/, answer(out, COPY["H"] + M["d", "1"] + M["c"] + M["C", "COPY 1\0"] + S.ready))
    assert_match(/without its end/, answer(out, COPY["H"] + M["C", "COPY 1\0"] + S.ready))
    assert_match(/no place/, answer(out, COPY["H"] + M["D", self.class.row("1")]))
    assert_match(/beginning of a COPY/, answer(out, M["H", "\0"]))
    assert_match(/did not begin/, answer(into, COPY["H"]))
    assert_match(/no place/, answer(into, COPY["G"], M["d", "x"]))
    assert_match(/without its end/, answer(into, COPY["G"], S.ready))
  end

  # Lengths that will never be filled cost no memory.
  def test_giant_lengths
    before = rss_kib
    ["D", "d"].each do |type|
      answers = (type == "D") ? BOUND : COPY["H"]
      server = S.new(&play([answers + type.b + [0x3fffffff].pack("N") + "x" * 10], 1 << 40, :stall))
      db, outcome = ask(server, KINDS[(type == "D") ? :query : :copy_out][0], timeout: TIME)
      assert_kind_of Heddle::DeadlineExceeded, outcome
    ensure
      db&.close
      server&.close
    end
    assert_operator rss_kib - before, :<, 64 << 10
  end

  # The real server's process, killed when it has the COMMIT and has not answered.
  def test_a_server_that_is_killed_in_a_commit
    with_server_of_its_own do |db|
      killer = nil
      error = assert_raises(Heddle::DB::ConnectionLost) do
        db.transaction do
          db.exec("insert into t values (1, 'a')")
          backend = db.driver.process_id
          Process.kill(:STOP, backend)
          wait_until(what: "the server to stall") { File.read("/proc/#{backend}/stat")[/.*\) (\S)/, 1] == "T" }
          sent = db.driver.stream.statistics[:bytes_sent]
          killer = Thread.new do
            wait_until(what: "the COMMIT") { db.driver.stream.statistics[:bytes_sent] > sent }
            Process.kill(:KILL, backend)
          end
        end
        flunk "it was said to be committed"
      end
      assert_match(/may or may not/, error.message)
    ensure
      killer&.join
    end
  end

  def test_a_server_that_is_killed_in_a_copy
    with_server_of_its_own do |db|
      assert_raises(Heddle::DB::ConnectionLost) do
        db.copy_in("copy t from stdin") do |copy|
          Process.kill(:KILL, db.driver.process_id)
          loop { copy << [1, "x" * 1000] }
        end
      end
    end
  end

  # The connection is closed afterwards, and nothing was committed.
  def with_server_of_its_own
    server = TestPostgreSQL.new.start
    db = Heddle::DB.connect(server.url, timeout: 20)
    db.exec("create table t (a int, b text)")
    db.exec("checkpoint") # the tests' servers write late
    yield db
    assert_predicate db, :closed?
    assert_equal 0, db.transaction_depth
    wait_until(what: "the server's recovery") do
      other = Heddle::DB.connect(server.url, timeout: 5)
      other.query_value("select count(*) from t") == 0
    rescue Heddle::DB::Error
      false
    ensure
      other&.close
    end
  rescue Servers::Unavailable => error
    skip error.message
  ensure
    db&.close
    server&.stop
  end
end
