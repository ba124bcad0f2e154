# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_exchanges"

# A query that was interrupted is stopped, at each byte of the server's answers, and with servers that answer a cancel
# in other ways.
class PostgreSQLInterruptedAtEachByteTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLExchanges

  hard_deadline 60

  DB = Heddle::DB
  STRIDE = ENV.key?("HEDDLE_STRESS") ? 1 : 3
  STOPPED = S.error("57014", "canceling statement due to user request", severity: "ERROR") + S.ready
  KINDS_THAT_GO_ON = %i[query prepared several atomic held_cursor unknown_type].freeze

  # Answers the requests before the one at index +at+, and the first +offset+ bytes of its answer. The rest comes after
  # a cancel. Later requests are answered from the first one on.
  def play(answers, at, offset, rest, sent)
    cancels = Thread::Queue.new
    lambda do |peer|
      next cancels << true if peer.startup[:version] == S::CANCEL_REQUEST

      peer.raw(LOGIN)
      answers.first(at).push(answers[at][0, offset]).each do |bytes|
        end_of_request(peer)
        peer.raw(bytes)
      end
      sent << true
      cancels.pop
      peer.raw(rest)
      loop do
        answers.each do |bytes|
          end_of_request(peer)
          peer.raw(bytes)
        end
      end
    end
  end

  # What a server sends that stops in the middle: the rest of the message, and its error; without one if all is said.
  def rest_of(answer, offset)
    boundary = 0
    boundary += 1 + answer[boundary + 1, 4].unpack1("N") while boundary < offset
    boundary += 6 if boundary == answer.bytesize - 6 && offset > boundary
    answer[offset...boundary] + ((boundary == answer.bytesize) ? "" : STOPPED)
  end

  def cancelled(sent, &body)
    Heddle.run do
      task = Heddle.spawn(&body)
      sent.pop
      3.times { sleep 0 } # the task has read all that has arrived
      task.cancel
      assert_raises(Heddle::TaskCancelled) { task.value }
    end
  end

  def interrupted(sent, &body)
    thread = Thread.new(&body)
    thread.report_on_exception = false
    sent.pop
    wait_until(what: "the wait for the answer") { thread.stop? }
    thread.raise(IndexError, "now")
    assert_raises(IndexError) { thread.value }
  end

  def interrupt(way, kind, at, offset)
    operation, expected, answers = KINDS.fetch(kind)
    rest = rest_of(answers[at], offset)
    script = play(answers, at, offset, rest, sent = Thread::Queue.new)
    S.play(script) do |server|
      what = "#{kind}, answer #{at}: #{way} at #{offset} of #{answers[at].bytesize}"
      db = DB.connect(server.url, timeout: 20)
      send(way, sent) { operation.call(db) }
      next assert_predicate(db, :closed?, what) unless rest.end_with?(STOPPED)

      refute_predicate db, :closed?, what
      assert_equal expected, operation.call(db), what
      assert_equal 2, server.accepted, what
    ensure
      db&.close
    end
  end

  KINDS_THAT_GO_ON.product(%i[cancelled interrupted]).each do |kind, way|
    define_method(:"test_#{kind}_#{way}") do
      KINDS[kind].last.each_with_index do |answer, at|
        (rand(STRIDE)...answer.bytesize).step(STRIDE) { |offset| interrupt(way, kind, at, offset) }
      end
    end
  end

  # The server finished the query before the cancel arrived: a late cancel could stop the next query.
  def test_servers_that_did_not_stop_the_query
    other = S.error("22012", "division by zero", severity: "ERROR") + S.ready
    fatal = S.error("57P01", "terminating connection", severity: "FATAL")
    {"the whole answer" => KINDS[:query].last.first, "another error" => other, "a fatal error" => fatal,
     "nothing" => "", "half an error" => STOPPED[0, 20], "no message" => "junk" * 20,
     "a COPY" => COPY["G"]}.each do |what, rest|
      script = play(KINDS[:query].last, 0, 0, rest, Thread::Queue.new)
      S.play(script) do |server|
        db = DB.connect(server.url, timeout: 20)
        took = monotonic
        assert_raises(Heddle::DeadlineExceeded, what) { Heddle.deadline(0.1) { db.query("select a, b from t") } }
        assert_operator monotonic - took, :<, stretched(4), "#{what}: it has half a second"
        assert_predicate db, :closed?, what
      end
    end
  end

  # Without the end of its connection nobody knows whether the cancel is still on its way.
  def test_a_cancel_that_is_not_acknowledged
    main = Thread::Queue.new
    script = lambda do |peer|
      if peer.startup[:version] == S::CANCEL_REQUEST
        main << true
      else
        peer.raw(LOGIN)
        peer.request
        main.pop
        peer.raw(STOPPED)
      end
      peer.socket.read
    end
    S.play(script) do |server|
      db = DB.connect(server.url, timeout: 20)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query("select 1") } }
      assert_predicate db, :closed?
    end
  end
end

# The caller is interrupted again while his query is being stopped.
class PostgreSQLInterruptedWhileStoppingTest < Minitest::Test
  include StreamHelpers
  include PostgreSQLExchanges

  hard_deadline 60

  DB = Heddle::DB
  STOPPED = PostgreSQLInterruptedAtEachByteTest::STOPPED

  # The cancel is acknowledged once +go+ has something; the request before number +at+ and those behind the cancel are
  # answered.
  def play(answers, at, stopped: STOPPED)
    @sent, @cancelled, @go = Array.new(3) { Thread::Queue.new }
    told = Thread::Queue.new
    lambda do |peer|
      if peer.startup[:version] == S::CANCEL_REQUEST
        @cancelled << true
        @go.pop
        next told << true
      end
      peer.raw(LOGIN)
      answers.each_with_index do |answer, index|
        end_of_request(peer)
        if index == at
          @sent << true
          told.pop
          answer = stopped
        end
        peer.raw(answer)
      end
      peer.socket.read
    end
  end

  # Returns how the thread ended.
  def interrupted_twice(first, second, &body)
    thread = Thread.new(&body)
    thread.report_on_exception = false
    @sent.pop
    wait_until(what: "the wait for the answer") { thread.stop? }
    thread.raise(first)
    @cancelled.pop
    (second == :kill) ? thread.kill : thread.raise(second)
    sleep 0.02
    @go << true
    thread.join(stretched(20)) || flunk("the thread hangs: #{thread.backtrace&.first(5)}")
    thread.value
  rescue StandardError, Interrupt => error
    error.class
  end

  # Timeout.timeout interrupts by an error, too: who rescued it would wait for ever.
  {IOError => IOError, KeyError => KeyError, Timeout::Error => Timeout::Error, Interrupt => Interrupt, :kill => nil}
    .each do |second, outcome|
      define_method(:"test_#{second.to_s.downcase.gsub("::", "_")}_comes_through_and_the_query_is_stopped") do
        S.play(play([KINDS[:query].last[0]] * 2, 0)) do |server|
          db = DB.connect(server.url, timeout: 20)
          assert_equal [outcome], [interrupted_twice(IndexError, second) { db.query("select a, b from t") }]
          refute_predicate db, :closed?
          assert_equal [[1, "eins"], [2, nil]], db.query("select a, b from t").rows
        ensure
          db&.close
        end
      end
    end

  # Wherever the second exception interrupts, the server is told, and the connection is usable or closed.
  def test_a_second_interrupt_at_any_moment
    seed = rand(100_000)
    random = Random.new(seed)
    (Integer(ENV.fetch("HEDDLE_STRESS", 1)) * 40).times do |round|
      script = play([KINDS[:query].last[0]] * 2, 0)
      @go << true
      S.play(script) do |server|
        what = "seed #{seed}, round #{round}"
        db = DB.connect(server.url, timeout: 20)
        thread = Thread.new { db.query("select a, b from t") }
        thread.report_on_exception = false
        @sent.pop
        wait_until(what: "the wait for the answer") { thread.stop? }
        thread.raise(IndexError)
        later = monotonic + random.rand * 0.0003
        nil while monotonic < later
        round.even? ? thread.kill : thread.raise(KeyError)
        begin
          thread.join
        rescue IndexError
          nil
        end
        assert_equal 2, server.accepted, "#{what}: no cancel"
        assert_equal [[1, "eins"], [2, nil]], db.query("select a, b from t").rows, what unless db.closed?
      ensure
        db&.close
      end
    end
  end

  # A server that was slow to begin the query takes the cancel for one of nothing, and begins.
  def test_a_cancel_that_came_before_the_query_is_sent_again
    cancels = Thread::Queue.new
    script = lambda do |peer|
      next cancels << true if peer.startup[:version] == S::CANCEL_REQUEST

      peer.raw(LOGIN)
      peer.request
      peer.socket.read
    end
    S.play(script) do |server|
      db = DB.connect(server.url, timeout: 20)
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.1) { db.query("select 1") } }
      assert_predicate db, :closed?
      assert_equal 2, cancels.size
    end
  end

  # The transaction is open, and nobody would end it.
  def test_a_rollback_that_was_stopped_closes_the_connection
    script = play([BEGUN, KINDS[:query].last[0]], 1, stopped: STOPPED.sub(S.ready, S.ready("E")))
    @go << true
    S.play(script) do |server|
      db = DB.connect(server.url, timeout: 20)
      thread = Thread.new { db.transaction { raise IndexError } }
      thread.report_on_exception = false
      @sent.pop
      wait_until(what: "the wait for the answer") { thread.stop? }
      thread.raise(KeyError)
      assert_raises(KeyError) { thread.value }
      assert_equal [true, 0], [db.closed?, db.transaction_depth]
    end
  end
end
