# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/postgresql_server"

runs_on also: %i[newer_servers]

# A query that was interrupted is stopped, and its connection goes on: on a real PostgreSQL.
# postgresql_interrupted_answers_test.rb has servers that answer in every way.
module PostgreSQLInterruptedSuite
  include StreamHelpers
  include PostgreSQLHelpers

  DB = Heddle::DB
  private_constant :DB

  # Where the machine is so busy that the server answers a cancel too late, the connection is closed: not each time.
  def with_connection(**options)
    server = postgresql
    last = monotonic + 20
    in_host do
      db = DB.connect(server.url, timeout: 20, **options)
      yield db
    rescue Minitest::Assertion, DB::ConnectionLost
      retry if db&.closed? && monotonic < last
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

  # Interrupts at one place after another, until the block returns nil: there is none any more. It returns where it has
  # interrupted. The next users of the connection get their own answers, or are told that the connection is closed.
  def interrupt_at_each_place(*preparation)
    stride = ENV.key?("HEDDLE_STRESS") ? 1 : 3
    server = postgresql
    in_host do
      (rand(stride)..).step(stride) do |at|
        db = DB.connect(server.url, timeout: 20)
        preparation.each { |sql| db.query(sql) }
        interrupted = yield db, at
        begin
          assert_equal [7, 8], [7, 8].map { |number| db.query_value("select #{number}") }, interrupted
        rescue DB::ConnectionLost
          assert_predicate db, :closed?, interrupted
        end
        break unless interrupted
      ensure
        db&.close
      end
    end
  end

  # A second exception interrupts at each line of the code that stops the query.
  def test_an_interrupt_while_the_query_is_being_stopped
    interrupt_at_each_place("select 0") { |db, at| interrupt_twice(db, at) }
  end

  LIBRARY = File.expand_path("../../lib/heddle/db", __dir__)
  private_constant :LIBRARY

  # @return [String, nil] where the second one has interrupted
  def interrupt_twice(db, at)
    place = nil
    lines = TracePoint.new(:line, :call) do |event|
      # In #talk nothing can interrupt after the last step but the trace itself.
      next if place || !$!.is_a?(Heddle::DeadlineExceeded) || !event.path.start_with?(LIBRARY) ||
        event.method_id == :talk
      next if (at -= 1) >= 0

      place = "#{event.path}:#{event.lineno}"
      raise IndexError, "interrupted again"
    end
    lines.enable(target_thread: Thread.current) { Heddle.deadline(0.02) { db.query("select pg_sleep(30)") } }
  rescue IndexError, Heddle::DeadlineExceeded
    place
  end

  # An exception arrives at the end of each method and block of the library: there Ruby looks for one.
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
    define_method(:"test_an_interrupt_between_two_steps_of_#{kind}") do
      interrupt_at_each_place("create temporary table numbers (n int)") do |db, at|
        interrupt_step(at) { operation.call(db) }
      end
    end
  end

  # @return [String, nil] where it has interrupted
  def interrupt_step(at)
    place = nil
    ends = TracePoint.new(:return, :b_return) do |event|
      next if place || !event.path.start_with?(LIBRARY) || (at -= 1) >= 0

      place = "#{event.path}:#{event.lineno}"
      raise IndexError, "interrupted"
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
      assert_equal [1, 3], db.query_column("select n from kept order by n")
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
