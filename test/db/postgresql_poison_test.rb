# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/postgresql_exchanges"

runs_on short: false

# An exchange is broken at every byte of the server's answers, from the log-in to the last row, in every way; and
# servers that violate the protocol. The result is the right answer, or an error, in time, and a closed connection.
class PostgreSQLPoisonTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLHelpers
  include PostgreSQLExchanges

  hard_deadline 120

  TIME = 0.3

  ENDINGS = ScriptedServer::ENDINGS

  def play(answers, offset, ending)
    lambda do |peer|
      peer.startup
      answer_partly(peer, answers, offset)
      ENDINGS.fetch(ending).call(peer)
    end
  end

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
      assert_predicate db, :closed?, what if db && !idle_wait?(kind, offset, ending) && !unsent?(db, ending)
      assert_raises(IOError, what) { db.query("select 1") } if db&.closed?
    else
      assert_equal [expected, true], [outcome, whole], what
    end
    assert_empty server.errors
  ensure
    db&.close
    server&.close
  end

  # Beside load the time may be over before the next request: then it is not sent, and no answer is outstanding.
  def unsent?(db, ending) = ending == :stall && db.driver.at_rest?

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

  # Each byte comes alone, once the one before has been read.
  def drip(kind)
    operation, expected, answers = KINDS.fetch(kind)
    client = Thread::Queue.new
    server = S.new do |peer|
      peer.startup
      peer.raw(LOGIN)
      received = client.pop.driver.stream.method(:statistics)
      answers.each do |bytes|
        end_of_request(peer)
        bytes.each_char do |byte|
          before = received.call[:bytes_received]
          peer.raw(byte)
          wait_until(what: "the read of a byte") { received.call[:bytes_received] > before }
        end
      end
      peer.read
    end
    db = Heddle::DB.connect(server.url, timeout: 20)
    client << db
    assert_equal expected, operation.call(db), kind
    refute_predicate db, :closed?
    assert_empty server.errors
  ensure
    db&.close
    server&.close
  end

  def test_answers_that_arrive_byte_by_byte
    KINDS.each_key do |kind|
      drip(kind)
      Heddle.run { drip(kind) }
    end
  end

  # Without a collection of old objects each time, which would take minutes.
  MINOR = 1

  # A collection at every allocation while the answers are read, and all objects moved before the last one.
  def test_answers_while_the_gc_runs_and_moves_objects
    KINDS.each do |kind, (operation, expected, answers)|
      server = S.new do |peer|
        peer.startup
        peer.raw(LOGIN)
        answers.each do |bytes|
          end_of_request(peer)
          GC.compact if bytes.equal?(answers.last) && GC.respond_to?(:compact)
          GC.stress = MINOR
          peer.raw(bytes)
        end
        peer.read
      end
      db = Heddle::DB.connect(server.url, timeout: 60)
      result = operation.call(db)
      GC.stress = false
      assert_equal expected, result, kind
      assert_empty server.errors
    ensure
      GC.stress = false
      db&.close
      server&.close
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
    assert_match(/row/, query_answered(BOUND + M["D", PostgreSQLExchanges.row([1].pack("N"))]))
    assert_match(/row/, query_answered(BOUND + M["D", PostgreSQLExchanges.row([1].pack("N"), "x", "y")]))
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
    assert_match(/no place/, answer(out, COPY["H"] + M["D", PostgreSQLExchanges.row("1")]))
    assert_match(/beginning of a COPY/, answer(out, M["H", "\0"]))
    assert_match(/did not begin/, answer(into, COPY["H"]))
    assert_match(/no place/, answer(into, COPY["G"], M["d", "x"]))
    assert_match(/without its end/, answer(into, COPY["G"], S.ready))
  end

  def test_malformed_copies_in_the_binary_form
    out, into = KINDS.values_at(:copy_out_binary, :copy_in_binary).map(&:first)
    head = "PGCOPY\n\xff\r\n\0".b + [0, 0].pack("NN")
    assert_match(/description/, answer(out, M["1"] + M["T", [9].pack("n")]))
    assert_match(/not executed/, answer(into, M["1"] + M["C", "SELECT 0\0"]))
    assert_match(/no place/, answer(into, COPY_BINARY["G"]))
    assert_match(/did not begin/, answer(into, DESCRIBED, COPY_BINARY["H"]))
    [[/other columns/, [1, 4, 1].pack("nNN")], [/malformed value/, [2, 3, "abc", -1].pack("nNa3N")],
      [/malformed row of a COPY/, [0x8000].pack("n")]].each do |message, tuple|
      assert_match(message, answer(out, DESCRIBED, COPY_BINARY["H"] + M["d", head + tuple]))
    end
  end

  # The server's word counts, not the client's reading of the statement.
  def test_copies_of_another_form_than_the_statement_says
    text = COPY["H"] + M["d", "1\teins\n"] + M["c"] + M["C", "COPY 1\0"] + S.ready
    server = S.new(&play([DESCRIBED, text], 1 << 40, :stall))
    db, outcome = ask(server, KINDS[:copy_out_binary][0], timeout: TIME)
    assert_equal [%w[1 eins]], outcome
  ensure
    db&.close
    server&.close
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
      error = assert_raises(Heddle::DB::ConnectionLost) do
        db.copy_in("copy t from stdin") do |copy|
          Process.kill(:KILL, db.driver.process_id)
          loop { copy << [1, "x" * 1000] }
        end
      end
      assert_match(/PostgreSQL at .*(lost|closed the connection)/, error.message)
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
  ensure
    db&.close
    server&.stop
  end
end
