# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"
require "support/postgresql_exchanges"

# A query that was interrupted is stopped, and its connection goes on: on a real PostgreSQL.
module PostgreSQLInterruptedSuite
  include StreamHelpers
  include PostgreSQLHelpers

  DB = Heddle::DB
  private_constant :DB

  # Where the machine is so busy that the server answers a cancel too late, the connection is closed: not each time.
  def with_connection(**options)
    server = postgresql
    left = 3
    in_host do
      db = DB.connect(server.url, timeout: 20, **options)
      yield db
    rescue Minitest::Assertion, DB::ConnectionLost
      retry if db&.closed? && (left -= 1) > 0
      raise
    ensure
      db&.close
    end
  end

  def interrupt(db, sql = "select pg_sleep(30)", *arguments)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { db.query(sql, *arguments) } }
  end

  SESSION = "select pg_backend_pid()"

  def test_the_session_survives_interrupted_queries
    with_connection(statement_cache: :always) do |db|
      session = db.query_value(SESSION)
      ["select pg_sleep(30)", "select ?::int from pg_sleep(30)", "select 1; select pg_sleep(30)"].each do |sql|
        2.times { interrupt(db, sql, *([1] if sql.include?("?"))) }
        assert_equal session, db.query_value(SESSION), sql
        assert_predicate db, :healthy?
      end
    end
  end

  def test_rows_received_before_the_interrupt_are_dropped
    with_connection do |db|
      interrupt(db, "select n, case when n = 3000 then pg_sleep(30) end from generate_series(1, 3000) as n")
      assert_equal [[1], [2]], db.query("select n::int from generate_series(1, 2) as n").rows
    end
  end

  def test_an_interrupt_within_a_value_closes_the_connection
    with_connection do |db|
      shell = "select repeat('x', 50000000) from generate_series(1, 50)"
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query(shell) } }
      assert_equal 1, db.query_value("select 1") unless db.closed?
    end
  end

  def test_the_statement_prepared_for_the_query_is_closed
    prepared = "select count(*) from pg_prepared_statements"
    with_connection(statement_cache: :always) do |db|
      before = db.query_value(prepared)
      3.times { |n| interrupt(db, "select ?::int, #{n} from pg_sleep(30)", 1) }
      assert_equal before, db.query_value(prepared)
    end
  end

  def test_a_kept_statement_stays_usable
    with_connection do |db|
      statement = db.prepare("select ?::int from pg_sleep(?)")
      assert_equal [[1]], statement.query(1, 0.0).rows
      assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.2) { statement.query(2, 30.0) } }
      assert_equal [[3]], statement.query(3, 0.0).rows
    end
  end

  def test_the_statement_prepared_for_a_query_with_rows_is_closed
    prepared = "select count(*) from pg_prepared_statements"
    with_connection(statement_cache: :always) do |db|
      before = db.query_value(prepared)
      3.times do |n|
        interrupt(db, "select ?::int, #{n}, repeat('x', 20000), case when n = 9 then pg_sleep(30) end " \
          "from generate_series(1, 9) as n", 1)
      end
      assert_equal before, db.query_value(prepared)
    end
  end

  # Its arguments are of other types, so that it was being prepared anew.
  def test_a_kept_statement_in_a_transaction_that_goes_on
    with_connection do |db|
      statement = db.prepare("select ?::text, repeat('x', 20000), case when n = 9 then pg_sleep(?) end " \
        "from generate_series(1, 9) as n")
      statement.query("1", 0.0)
      db.transaction do
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.3) { db.transaction { statement.query(2.5, 30) } }
        end
        assert_equal "2.5", statement.query(2.5, 0).rows.first.first
      end
    end
  end

  # Nobody needs the types of the dropped values any more.
  def test_an_interrupt_before_unknown_types_are_looked_up
    with_connection do |db|
      db.query("create temporary table things (kind int4range[])")
      db.query("insert into things values (array['[1,5)'::int4range])")
      interrupt(db, "select kind, pg_sleep(30) from things")
      assert_equal [1...5], db.query_value("select kind from things")
    end
  end

  def test_a_transaction_fails_and_is_rolled_back
    with_connection do |db|
      db.query("create temporary table kept (n int)")
      session = db.query_value(SESSION)
      error = assert_raises(DB::TransactionError) do
        db.transaction do
          db.exec("insert into kept values (1)")
          interrupt(db)
          assert_predicate db, :needs_rollback?
          db.exec("insert into kept values (2)")
        end
      end
      assert_includes error.message, "interrupted"
      assert_equal [session, 0], db.query_row("select pg_backend_pid(), count(*)::int from kept")
    end
  end

  # A second exception strikes at each line of the code that stops the query. The next user of the connection gets an
  # answer, or one error that says that the connection is closed.
  def test_a_strike_while_the_query_is_being_stopped
    server = postgresql
    stride = ENV.key?("HEDDLE_STRESS") ? 1 : 3
    in_host do
      (rand(stride)..).step(stride) do |at|
        db = DB.connect(server.url, timeout: 20)
        db.query_value("select 0")
        struck = strike_twice(db, at)
        begin
          assert_equal 7, db.query_value("select 7"), struck
        rescue DB::ConnectionLost
          assert_predicate db, :closed?, struck
        end
        break unless struck
      ensure
        db&.close
      end
    end
  end

  LIBRARY = File.expand_path("../../lib/heddle/db", __dir__)
  private_constant :LIBRARY

  # @return [String, nil] where the second one has struck
  def strike_twice(db, at)
    place = nil
    lines = TracePoint.new(:line, :call) do |event|
      # In #talk nothing can strike after the last step but the trace itself.
      next if place || !$!.is_a?(Heddle::DeadlineExceeded) || !event.path.start_with?(LIBRARY) ||
        event.method_id == :talk
      next if (at -= 1) >= 0

      place = "#{event.path}:#{event.lineno}"
      raise IndexError, "struck again"
    end
    lines.enable(target_thread: Thread.current) { Heddle.deadline(0.02) { db.query("select pg_sleep(30)") } }
  rescue IndexError, Heddle::DeadlineExceeded
    place
  end

  # An exception strikes at the end of each method and block of the library: there Ruby looks for one. The next two
  # users get their own answers, or are told that the connection is closed.
  STEPS = {
    query: ->(db) { db.query("select 1") },
    prepared: ->(db) { db.prepare("select ?::int").query(1) },
    several: ->(db) { db.query("select 1; select 2") },
    pipeline: ->(db) { db.pipeline { |pipeline| 3.times { pipeline.query("select 1") } } },
    atomic: ->(db) { db.pipeline(atomic: true) { |pipeline| 3.times { pipeline.query("select 1") } } },
    cursor: ->(db) { db.transaction { db.each_row("select 1", fetch: 1) { |row| row } } },
    held_cursor: ->(db) { db.each_row("select 1", fetch: 1) { |row| row } },
    copy_out: ->(db) { db.copy_out("copy (select 1) to stdout") { |row| row } },
    copy_out_binary: ->(db) { db.copy_out("copy (select 1) to stdout binary") { |row| row } },
    copy_in: ->(db) { db.copy_in("copy numbers from stdin") { |copy| copy << [1] } },
    copy_in_binary: ->(db) { db.copy_in("copy numbers from stdin binary") { |copy| copy << [1] } }
  }.freeze

  STEPS.each do |kind, operation|
    define_method(:"test_a_strike_between_two_steps_of_#{kind}") do
      stride = ENV.key?("HEDDLE_STRESS") ? 1 : 3
      server = postgresql
      in_host do
        (rand(stride)..).step(stride) do |at|
          db = DB.connect(server.url, timeout: 20)
          db.exec("create temporary table numbers (n int)")
          struck = strike_step(at) { operation.call(db) }
          begin
            assert_equal [7, 8], [7, 8].map { |number| db.query_value("select #{number}") }, struck
          rescue DB::ConnectionLost
            assert_predicate db, :closed?, struck
          end
          break unless struck
        ensure
          db&.close
        end
      end
    end
  end

  # @return [String, nil] where it has struck
  def strike_step(at)
    place = nil
    ends = TracePoint.new(:return, :b_return) do |event|
      next if place || !event.path.start_with?(LIBRARY) || (at -= 1) >= 0

      place = "#{event.path}:#{event.lineno}"
      raise IndexError, "struck"
    end
    ends.enable(target_thread: Thread.current) { yield }
    nil
  rescue IndexError
    place
  end

  def test_a_nested_transaction_is_undone_alone
    with_connection do |db|
      db.query("create temporary table kept (n int)")
      db.transaction do
        db.exec("insert into kept values (1)")
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.2) do
            db.transaction do
              db.exec("insert into kept values (2)")
              db.query("select pg_sleep(30)")
            end
          end
        end
        db.exec("insert into kept values (3)")
      end
      assert_equal [1, 3], db.query_list("select n from kept order by n")
    end
  end

  def test_a_fetch_of_a_cursor
    with_connection do |db|
      session = db.query_value(SESSION)
      read = []
      sql = "select n::int, case when n = 4 then pg_sleep(30) end from generate_series(1, 5) as n"
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.5) { db.transaction { db.each_row(sql, fetch: 2) { |n, _| read << n } } }
      end
      assert_equal [1, 2, 3], read
      assert_equal session, db.query_value(SESSION)
      assert_equal 0, db.query_value("select count(*) from pg_cursors where name <> ''")
    end
  end

  def test_an_atomic_pipeline_leaves_nothing
    with_connection do |db|
      db.query("create temporary table kept (n int)")
      session = db.query_value(SESSION)
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.2) do
          db.pipeline(atomic: true) do |pipeline|
            pipeline.query("insert into kept values (1)")
            pipeline.query("select pg_sleep(30)")
            pipeline.query("insert into kept values (2)")
          end
        end
      end
      assert_equal [session, 0], db.query_row("select pg_backend_pid(), count(*)::int from kept")
    end
  end

  # A cancel stops one statement; those behind it would go on.
  def test_a_pipeline_closes_the_connection
    with_connection do |db|
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.2) { db.pipeline { |pipeline| 2.times { pipeline.query("select pg_sleep(30)") } } }
      end
      assert_predicate db, :closed?
    end
  end

  def test_a_pool_keeps_its_connection
    server = postgresql
    in_host do
      pool = DB::Pool.new(server.url, size: 1, timeout: 20)
      session = pool.query_value(SESSION)
      interrupt(pool)
      assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
      assert_equal session, pool.query_value(SESSION)
    ensure
      pool&.close
    end
  end

  # Each answer carries its query's number, which tells whether it is the answer to another query.
  def test_every_user_gets_the_answer_to_its_own_query
    server = postgresql
    rounds = Integer(ENV.fetch("HEDDLE_STRESS", 1)) * 10
    in_host do
      pool = DB::Pool.new(server.url, size: 3, timeout: 20, checkout_timeout: 20)
      outcomes = Thread::Queue.new
      users = Array.new(6) do |user|
        start_user do
          random = Random.new(user)
          rounds.times do |round|
            number = user * 1000 + round
            # The first one has the time that it needs.
            value = Heddle.deadline(round.zero? ? 20 : random.rand * 0.3) do
              pool.query_value("select ?::int from pg_sleep(?)", number, random.rand * 0.1)
            end
            outcomes << [number, value]
          rescue Heddle::DeadlineExceeded
            outcomes << :late
          end
        end
      end
      users.each(&:value)
      ended, late = Array.new(outcomes.size) { outcomes.pop }.partition { |outcome| outcome != :late }
      ended.each { |number, value| assert_equal number, value }
      assert_operator ended.size, :>, 0
      assert_operator late.size, :>, 0
      assert_equal 0, pool.stats[:connections] - pool.stats[:free]
    ensure
      pool&.close
    end
  end
end

class PostgreSQLInterruptedThreadTest < Minitest::Test
  include PostgreSQLInterruptedSuite

  hard_deadline 60

  def in_host = yield

  def start_user(&block) = Thread.new(&block)

  def test_a_killed_thread
    pool = Heddle::DB::Pool.new(postgresql.url, size: 1, timeout: 20)
    session = pool.query_value(PostgreSQLInterruptedSuite::SESSION)
    started = Thread::Queue.new
    thread = Thread.new do
      pool.with do |db|
        started << db
        db.query("select pg_sleep(30)")
      end
    end
    started.pop
    wait_until(what: "the query") { asleep?(session) } # a cancel that comes before the query closes the connection
    thread.kill.join(20)
    refute_predicate thread, :alive?
    assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
    assert_equal session, pool.query_value(PostgreSQLInterruptedSuite::SESSION)
  ensure
    pool&.close
    @watcher&.close
  end

  private

  def asleep?(session)
    @watcher ||= Heddle::DB.connect(postgresql.url, timeout: 20)
    @watcher.query_value("select wait_event = 'PgSleep' from pg_stat_activity where pid = ?", session)
  end
end

class PostgreSQLInterruptedTaskTest < Minitest::Test
  include PostgreSQLInterruptedSuite

  hard_deadline 60
  mode :fiber

  def in_host(&block) = Heddle.run(&block)

  def start_user(&block) = Heddle.spawn(&block)

  def test_the_connection_is_busy_while_the_query_is_being_stopped
    with_connection do |db|
      task = Heddle.spawn { Heddle.deadline(0.1) { db.query("select pg_sleep(30)") } }
      refute_empty busy_answers(db, task)
      assert_raises(Heddle::DeadlineExceeded) { task.value }
      assert_equal 1, db.query_value("select 1")
    end
  end

  private

  # What other queries get until the task has ended, or the connection is closed.
  def busy_answers(db, task)
    answers = []
    until task.ended? || db.closed?
      begin
        db.query_value("select 1")
      rescue Heddle::DB::Busy => error
        answers << error
      end
      sleep(0)
    end
    answers
  end
end

# The same at each byte of the server's answers, and with servers that answer a cancel in other ways.
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

  def struck(sent, &body)
    thread = Thread.new(&body)
    thread.report_on_exception = false
    sent.pop
    wait_until(what: "the wait for the answer") { thread.stop? }
    thread.raise(IndexError, "now")
    assert_raises(IndexError) { thread.value }
  end

  def strike(way, kind, at, offset)
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

  KINDS_THAT_GO_ON.product(%i[cancelled struck]).each do |kind, way|
    define_method(:"test_#{kind}_#{way}") do
      KINDS[kind].last.each_with_index do |answer, at|
        (rand(STRIDE)...answer.bytesize).step(STRIDE) { |offset| strike(way, kind, at, offset) }
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
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        assert_raises(Heddle::DeadlineExceeded, what) { Heddle.deadline(0.1) { db.query("select a, b from t") } }
        assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - took, :<, 4, "#{what}: it has half a second"
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

# The caller is struck again while his query is being stopped.
class PostgreSQLStruckWhileStoppingTest < Minitest::Test
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
  def struck_twice(first, second, &body)
    thread = Thread.new(&body)
    thread.report_on_exception = false
    @sent.pop
    wait_until(what: "the wait for the answer") { thread.stop? }
    thread.raise(first)
    @cancelled.pop
    (second == :kill) ? thread.kill : thread.raise(second)
    sleep 0.02
    @go << true
    thread.join(20) || flunk("the thread hangs: #{thread.backtrace&.first(5)}")
    thread.value
  rescue StandardError, Interrupt => error
    error.class
  end

  # Timeout.timeout strikes by an error, too: who rescued it would wait for ever.
  {IOError => IOError, KeyError => KeyError, Timeout::Error => Timeout::Error, Interrupt => Interrupt, :kill => nil}
    .each do |second, outcome|
      define_method(:"test_#{second.to_s.downcase.gsub("::", "_")}_comes_through_and_the_query_is_stopped") do
        S.play(play([KINDS[:query].last[0]] * 2, 0)) do |server|
          db = DB.connect(server.url, timeout: 20)
          assert_equal [outcome], [struck_twice(IndexError, second) { db.query("select a, b from t") }]
          refute_predicate db, :closed?
          assert_equal [[1, "eins"], [2, nil]], db.query("select a, b from t").rows
        ensure
          db&.close
        end
      end
    end

  # Wherever the second exception strikes, the server is told, and the connection is usable or closed.
  def test_a_second_strike_at_any_moment
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
