# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"
require "support/scripted_mysql"

# An exchange is broken at every byte of the server's answers, from its greeting to the last row, in every way; and
# servers that violate the protocol. The result is the right answer, or an error, in time, and a closed connection.
class MySQLPoisonTest < Minitest::Test
  include StreamHelpers

  hard_deadline 120

  S = ScriptedMySQL
  SQL = "select a, b from t where c = ?"
  ROWS = [[1, "eins"], [2, nil]].freeze
  COLUMNS = [S.column("a", 8), S.column("b", 253, charset: 45)].freeze
  BINARY = ["\0\0\1\0\0\0\0\0\0\0\4eins".b, "\0\x08\2\0\0\0\0\0\0\0".b].freeze

  # The server's answers, and how many requests it waits for before each.
  REPLIES = {
    # A MariaDB: prepare and execution come together.
    one_flight: [
      [0, S.packets(0, S.greeting(version: "5.5.5-10.11.6-MariaDB", capabilities: S::CAPABILITIES & ~1))],
      [1, S.packets(2, S.ok)],
      [1, S.packets(1, S.ok)],
      [2, S.packets(1, S.prepared(2, 1), S.column("?", 253), *COLUMNS) + S.packets(1, "\2".b, *COLUMNS, *BINARY,
        S.ok(first: 0xfe))]
    ],
    # A MySQL.
    two_flights: [
      [0, S.packets(0, S.greeting)],
      [1, S.packets(2, S.ok)],
      [1, S.packets(1, S.ok)],
      [1, S.packets(1, S.prepared(2, 1), S.column("?", 253), *COLUMNS)],
      [1, S.packets(1, "\2".b, *COLUMNS, *BINARY, S.ok(first: 0xfe))]
    ],
    # One without CLIENT_DEPRECATE_EOF.
    old_ends: [
      [0, S.packets(0, S.greeting(capabilities: S::CAPABILITIES & ~(1 << 24)))],
      [1, S.packets(2, S.ok)],
      [1, S.packets(1, S.ok)],
      [1, S.packets(1, S.prepared(2, 1), S.column("?", 253), "\xfe\0\0\2\0".b, *COLUMNS, "\xfe\0\0\2\0".b)],
      [1, S.packets(1, "\2".b, *COLUMNS, "\xfe\0\0\2\0".b, *BINARY, "\xfe\0\0\2\0".b)]
    ]
  }.freeze

  ENDINGS = ScriptedServer::ENDINGS

  TIME = 0.3
  class Interruption < StandardError; end

  def play(replies, offset, ending)
    lambda do |peer|
      left = offset
      replies.each do |requests, bytes|
        requests.times { peer.request }
        peer.raw(bytes[0, left])
        left -= bytes.bytesize
        break if left <= 0
      end
      ENDINGS.fetch(ending).call(peer)
    end
  end

  # Asks, and returns the outcome.
  def ask(server, timeout: 5)
    db = Heddle::DB.connect(server.url, timeout: timeout)
    [db, db.query(SQL, 3).rows]
  rescue Heddle::DB::Error, Heddle::DeadlineExceeded, Interruption, IOError, SystemCallError => error
    [db, error]
  end

  def ask_within(seconds, server)
    Heddle.deadline(seconds) { ask(server, timeout: nil) }
  rescue Heddle::DeadlineExceeded => error
    [nil, error]
  end

  # Where the whole answer comes, it comes only before the time is over.
  def time_for(replies, offset) = (offset < total(replies)) ? TIME : 5

  def total(replies) = replies.sum { |_, bytes| bytes.bytesize }

  # One try: the right answer only when all of it arrived.
  def break_at(replies, offset, ending, **options)
    server = S.new(&play(replies, offset, ending))
    db, outcome = yield(server, options)
    what = "#{ending} at #{offset} of #{total(replies)}: #{outcome.inspect}"
    if outcome.is_a?(Array)
      assert_equal [ROWS, total(replies)], [outcome, offset], what
    else
      assert_kind_of Exception, outcome, what
      assert_operator offset, :<, total(replies), what
      if db
        assert_predicate db, :closed?, what
        assert_raises(IOError, what) { db.query(SQL, 3) }
      end
    end
    assert_empty server.errors
    outcome
  ensure
    db&.close
    server&.close
  end

  REPLIES.each do |name, replies|
    %i[close reset].each do |ending|
      define_method(:"test_#{ending}_in_#{name}") do
        (0..total(replies)).each { |offset| break_at(replies, offset, ending) { |server, _| ask(server) } }
      end
    end

    # Many at a time, since each takes long.
    define_method(:"test_silence_in_#{name}_in_tasks") do
      outcomes = Heddle::FiberPool.new(100).map((0..total(replies)).to_a) do |offset|
        break_at(replies, offset, :stall) { |server, _| ask(server, timeout: time_for(replies, offset)) }
      end
      assert_empty outcomes[0..-2].grep_v(Heddle::DeadlineExceeded)
    end
  end

  def test_silence_in_threads
    replies = REPLIES[:one_flight]
    offsets = (0..total(replies)).to_a
    outcomes = Thread::Queue.new
    Array.new(32) {
      Thread.new do
        while (offset = offsets.shift)
          outcomes << break_at(replies, offset, :stall) { |server, _| ask_within(time_for(replies, offset), server) }
        end
      end
    }.each(&:value)
    assert_equal 1, Array.new(outcomes.size) { outcomes.pop }.grep_v(Heddle::DeadlineExceeded).size # the whole answer
  end

  def test_interruptions_of_threads
    replies = REPLIES[:one_flight]
    (0...total(replies)).step(7) do |offset|
      break_at(replies, offset, :stall) do |server, _|
        thread = Thread.new { ask(server) }
        wait_until { thread.status == "sleep" }
        thread.raise(Interruption, "now")
        thread.value
      end
    end
  end

  def test_cancels
    replies = REPLIES[:one_flight]
    Heddle.run do
      (0...total(replies)).step(7) do |offset|
        server = S.new(&play(replies, offset, :stall))
        db = nil
        task = Heddle.spawn { (db = Heddle::DB.connect(server.url)).query(SQL, 3) }
        sleep(0.002) # at whatever byte that is
        task.cancel
        assert task.wait(5)
        assert_predicate db, :closed? if db
      ensure
        server&.close
      end
    end
  end

  # ---- malicious servers

  # Answers the query with these bytes.
  def answer(bytes, replies = REPLIES[:one_flight])
    before = descriptor_count
    server = S.new(&play([*replies[0..-2], [replies.last.first, bytes.b]], 1 << 40, :stall))
    db, outcome = ask(server, timeout: 5)
    yield outcome
    assert_predicate db, :closed?
    db.close
  ensure
    server&.close
    wait_until(what: "the close of the socket") { descriptor_count <= before + 1 }
  end

  def assert_violation(pattern, bytes)
    answer(bytes) do |outcome|
      assert_kind_of Heddle::DB::ProtocolError, outcome
      assert_match pattern, outcome.message
    end
  end

  def prepared = S.packets(1, S.prepared(2, 1), S.column("?", 253), *COLUMNS)

  def result(*packets) = prepared + S.packets(1, "\2", *COLUMNS, *packets)

  def test_local_files_are_never_sent
    assert_violation(/LOCAL INFILE/, prepared + S.packets(1, "\xfb/etc/passwd"))
  end

  def test_packets_out_of_turn
    assert_violation(/out of sequence/, S.packets(0, S.prepared(2, 1)))
    assert_violation(/out of sequence/, S.packets(2, S.prepared(2, 1)))
    assert_violation(/out of sequence/, prepared + S.packets(1, "\2") + S.packets(3, COLUMNS[0]))
    assert_violation(/out of sequence/, [0xffffff, 9].pack("Vx0")[0, 3] + "\x09" + "x" * 100)
  end

  def test_packets_of_the_wrong_kind
    assert_violation(/prepare/, S.packets(1, "\2"))
    assert_violation(/prepare/, S.packets(1, "\0\1"))
    assert_violation(/definition/, S.packets(1, S.prepared(2, 0), "abc"))
    assert_violation(/malformed result header|not a result/, prepared + S.packets(1, ""))
    assert_violation(/malformed result header/, prepared + S.packets(1, "\xfe" + "\xff" * 8))
    assert_violation(/malformed result header/, prepared + S.packets(1, "\2\1\1"))
    assert_violation(/row/, result("\0\0\1\0\0\0\0\0\0\0\x05eins"))
    assert_violation(/row/, result("\0\0\1\0\0\0\0\0\0\0\4eins!"))
    assert_violation(/row/, result("\0\0\1"))
    assert_violation(/row/, result("\2"))
    assert_violation(/end of rows/, result("\xfe"))
    assert_violation(/OK/, prepared + S.packets(1, "\0\1"))
    assert_violation(/error/, prepared + S.packets(1, "\xff"))
  end

  # Lengths that will never be filled cost no memory.
  def test_giant_lengths
    before = rss_kib
    giant = result + [0xfffffe | 4 << 24].pack("V") + "\0\0" + "x" * 10
    8.times do
      server = S.new(&play([*REPLIES[:one_flight][0..-2], [2, giant]], 1 << 40, :stall))
      _, outcome = ask(server, timeout: 0.1)
      assert_kind_of Heddle::DeadlineExceeded, outcome
    ensure
      server&.close
    end
    assert_operator rss_kib - before, :<, 64 << 10
    assert_violation(/row/, result("\0\0\1\0\0\0\0\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"))
  end

  # Bytes behind the answer belong to no request: the connection is not handed on.
  def test_bytes_behind_the_answer
    server = S.new(&play([*REPLIES[:one_flight][0..-2], [2, REPLIES[:one_flight].last.last + S.packets(1, S.ok)]],
      1 << 40, :stall))
    db, outcome = ask(server)
    assert_equal ROWS, outcome
    wait_until { !db.healthy? }
  ensure
    db&.close
    server&.close
  end

  # The real server, killed when it has the COMMIT and has not answered.
  def test_a_mariadb_that_is_killed_in_a_commit
    server = TestMariaDB.new.start
    db = Heddle::DB.connect(server.url, timeout: 20)
    db.exec("create table t (a int)")
    killer = nil
    error = assert_raises(Heddle::DB::ConnectionLost) do
      db.transaction do
        db.exec("insert into t values (1)")
        Process.kill(:STOP, server.pid)
        wait_until(what: "the server to stall") { stopped?(server.pid) }
        sent = db.driver.stream.statistics[:bytes_sent]
        killer = Thread.new do
          wait_until(what: "the COMMIT") { db.driver.stream.statistics[:bytes_sent] > sent }
          Process.kill(:KILL, server.pid)
        end
      end
      flunk "it was said to be committed"
    end
    assert_match(/may or may not/, error.message)
    assert_predicate db, :closed?
  ensure
    killer&.join
    db&.close
    server&.stop
  end

  # The signal is sent before all of the process's threads have it.
  def stopped?(pid)
    Dir["/proc/#{pid}/task/*/stat"].all? { |path| File.read(path)[/.*\) (\S)/, 1] == "T" }
  end

  # A COMMIT without an answer is not reported as done.
  def test_a_server_that_dies_in_a_commit
    [0, 3, 10].each do |offset|
      server = S.new do |peer|
        REPLIES[:one_flight][0..2].each { |requests, bytes| requests.times { peer.request } && peer.raw(bytes) }
        assert_equal "\x03START TRANSACTION", peer.request
        peer.raw(S.packets(1, S.ok(status: 3)))
        assert_equal "\x03COMMIT", peer.request
        peer.raw(S.packets(1, S.ok)[0, offset])
        peer.close
      end
      db = Heddle::DB.connect(server.url, timeout: 5)
      error = assert_raises(Heddle::DB::ConnectionLost) { db.transaction { :value } }
      assert_match(/may or may not/, error.message)
      assert_predicate db, :closed?
      assert_equal 0, db.transaction_depth
      assert_empty server.errors
    ensure
      server&.close
    end
  end
end
