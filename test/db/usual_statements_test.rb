# frozen_string_literal: true

require "test_helper"
require "support/postgresql_server"
require "support/sqlite_helpers"

# The Talk of a connection runs usual statements in C. Each case runs twice: so, and by the connection's Ruby code,
# which the Talk asks while a listener, a lease, a transaction or a handler of notices could be there. Both do the same.
module UsualStatements
  DB = Heddle::DB
  # What the Ruby code is asked by.
  OTHERWISE = %i[query_otherwise run_statement].freeze
  # The parts of an outcome that both ways have in common, for an error.
  PARTS = %i[class message sql sql_state].freeze

  # An argument whose conversion is the block.
  class Converted
    def initialize(&work) = @work = work

    def acts_like?(_kind) = true

    def to_time = @work.call
  end

  # @return [Array] the outcome of the block, what the connection can do afterwards, and whether Ruby code was asked
  def outcome(db, ask)
    talk = db.instance_variable_get(:@talk)
    asked = 0
    trace = TracePoint.new(:call) { |point| asked += 1 if OTHERWISE.include?(point.method_id) && point.self.equal?(db) }
    talk.guarded = ask
    value = trace.enable(target_thread: Thread.current) { plain { yield } }
    talk.guarded = false
    [[value, db.closed?, talk.going_on?, plain { db.query(after).rows }], asked > 0]
  end

  # Addresses of objects differ.
  def plain
    yield
  rescue Exception => error # standard:disable Lint/RescueException
    parts = PARTS.map { |part| error.respond_to?(part) ? error.public_send(part) : nil }
    [*parts, error.cause.class].map { |part| part.is_a?(String) ? part.gsub(/0x\h+/, "0x") : part }
  end

  def after = "select 7"

  # Ends the sleep in a function of SQL.
  def wake(thread)
    thread.wakeup
  rescue ThreadError
    nil # it has ended
  end

  # @yieldparam db [DB::Connection] a new one
  # @yieldreturn [Proc] the case
  # @param usual [Boolean, nil] whether the Talk runs it, if nothing else has to be asked; nil: perhaps
  # @return [Object] its outcome in both ways
  def in_both_ways(usual: true)
    outcomes = [false, true].map do |ask|
      in_host do
        db = connect
        operation = yield db
        outcome, asked = outcome(db, ask, &operation)
        assert_equal ask || !usual, asked, "whether Ruby code was asked" unless usual.nil?
        outcome
      ensure
        db&.close
      end
    end
    assert_equal(*outcomes)
    outcomes.first.first
  end

  def kept(db, sql, *first)
    statement = db.prepare(sql)
    plain { statement.query(*first) } # which looks at the kind of the text
    statement
  end

  def test_rows
    found = in_both_ways do |db|
      statement = kept(db, "select n, name from t where n = ?", 1)
      -> { statement.query(2).rows }
    end
    assert_equal [[2, "b"]], found
  end

  def test_a_write
    in_both_ways { |db| (statement = kept(db, insert, 3)) && -> { statement.query(4).affected_rows } }
  end

  def test_a_refusal
    found = in_both_ways { |db| (statement = kept(db, insert, 3)) && -> { statement.query(1) } }
    assert_equal [DB::UniqueViolation, insert, "23505"], found.values_at(0, 2, 3)
  end

  def test_arguments_that_do_not_fit
    [[], [1, 2], [Object], [{n: 1}], ["\xff"]].each do |arguments|
      found = in_both_ways { |db| (statement = kept(db, one, 1)) && -> { statement.query(*arguments).rows } }
      assert_operator found[0], :<, StandardError, arguments.inspect
    end
  end

  def test_a_closed_connection
    # Some links close their statements.
    found = in_both_ways(usual: nil) do |db|
      statement = kept(db, one, 1)
      db.close
      -> { statement.query(1) }
    end
    assert_equal DB::ConnectionLost, found[0]
    assert_includes found[1], "nothing was sent"
  end

  def test_a_connection_of_the_parent
    outcomes = [false, true].map do |ask|
      db = connect
      statement = kept(db, one, 1)
      read, write = IO.pipe
      pid = fork do
        found, = outcome(db, ask) { statement.query(1).rows }
        write.write Marshal.dump([found[0].first(2).map(&:to_s), *found[1, 2]])
        write.close
        exit! 0
      end
      write.close
      Marshal.load(read.read)
    ensure
      Process.wait(pid) if pid
      read&.close
      db&.close
    end
    assert_equal(*outcomes)
    assert_match(/belongs to the parent process/, outcomes[0][0][1])
  end

  def test_new_sql
    assert_equal [[2, "b"]], in_both_ways { |db| -> { db.query("select n, name from t where n = ?", 2).rows } }
    assert_equal 1, in_both_ways { |db| -> { db.query(insert, 3).affected_rows } }
    found = in_both_ways { |db| -> { db.query(insert, 1) } }
    assert_equal [DB::UniqueViolation, insert, "23505"], found.values_at(0, 2, 3)
    assert_equal DB::ServerError, in_both_ways { |db| -> { db.query("select nothing from t where n = ?", 1) } }[0]
    [[], [1, 2], [Object], ["\xff"]].each do |arguments|
      found = in_both_ways { |db| -> { db.query("select 1 where 1 = ?", *arguments).rows } }
      assert_operator found[0], :<, StandardError, arguments.inspect
    end
    found = in_both_ways { |db| -> { Heddle.deadline(0.05) { db.query(waiting, 30).rows } } }
    assert_equal Heddle::DeadlineExceeded, found[0]
    assert_equal DB::ConnectionLost, in_both_ways { |db| db.close.nil? && -> { db.query("select 1") } }[0]
  end

  # In what is left early the connection is asked whether it stays open.
  def test_a_deadline
    found = in_both_ways do |db|
      statement = kept(db, waiting, 0)
      -> { Heddle.deadline(0.05) { statement.query(30).rows } }
    end
    assert_equal Heddle::DeadlineExceeded, found[0]
  end

  # The connection is not lost because the caller's own code has raised an error of the system.
  def test_an_error_of_the_system_in_an_argument
    [Errno::ENOENT, IOError].each do |type|
      failing = Converted.new { raise type }
      found = in_both_ways { |db| (statement = kept(db, one, 1)) && -> { statement.query(failing) } }
      assert_equal type, found[0]
      assert_equal type, in_both_ways { |db| -> { db.query(one, failing) } }[0]
    end
  end

  # Ruby lets other threads run between the connection's answer and the turn that the answer allows.
  def test_somebody_else_takes_the_turn_behind_the_answer
    db = connect
    statement = kept(db, waiting, 0)
    talk = db.instance_variable_get(:@talk)
    talk.guarded = true
    first = nil
    trace = TracePoint.new(:return) do |point|
      next if first || point.method_id != :check_owner

      first = Thread.new { plain { statement.query(30) } }
      sleep 0.001 until talk.going_on?
    end
    found = trace.enable(target_thread: Thread.current) { plain { db.query("select 1") } }
    assert_equal [DB::Busy, true, false], [found[0], talk.going_on?, db.closed?]
  ensure
    first&.kill&.join
    db&.close
  end

  # The same, with a transaction.
  def test_somebody_else_begins_a_transaction_behind_the_answer
    db = connect
    db.instance_variable_get(:@talk).guarded = true
    first = nil
    trace = TracePoint.new(:return) do |point|
      next if first || point.method_id != :check_owner

      (first = Thread.new { db.start_transaction }).join
    end
    found = trace.enable(target_thread: Thread.current) { plain { db.query("select 1") } }
    assert_equal DB::Busy, found[0]
  ensure
    db&.close
  end

  # What is sent before the close has come to its end may be executed: nobody is told that it was not sent.
  def test_a_statement_that_begins_in_the_middle_of_a_close
    db = connect
    statement = kept(db, waiting, 0)
    talk = db.instance_variable_get(:@talk)
    test, first = self, nil
    db.driver.define_singleton_method(:close) do
      first ||= Thread.new { test.plain { statement.query(30) } }
      sleep 0.001 until talk.going_on? || !first.alive?
      super()
    end
    db.close
    wake(first) until first.join(0.01)
    assert_equal DB::ConnectionLost, first.value[0]
    assert_includes first.value[1], "may or may not"
    assert_includes plain { db.query("select 1") }[1], "nothing was sent"
  end

  def test_somebody_else_asks_meanwhile
    in_host do
      db = connect
      statement = kept(db, waiting, 0)
      other = kept(db, one, 1)
      found = []
      first = concurrently { statement.query(0.3).rows.size }
      pause until db.instance_variable_get(:@talk).going_on?
      [-> { other.query(1) }, -> { db.query("select 1") }].each { |ask| found << plain(&ask) }
      assert_equal [DB::Busy], found.map(&:first).uniq
      assert_equal 1, first.value
      assert_equal [[1]], other.query(1).rows
    ensure
      db&.close
    end
  end

  def test_another_owner
    in_host do
      db = connect
      statement = kept(db, one, 1)
      asks = [-> { statement.query(1) }, -> { db.query("select 1") }]
      db.start_transaction
      asks.each { |ask| assert_equal DB::Busy, plain { concurrently { plain(&ask) }.value }[0] }
      db.rollback
      db.lease = :none
      asks.each { |ask| assert_equal DB::Busy, plain(&ask)[0] }
      db.lease = nil
      asks.each { |ask| assert_equal [[1]], ask.call.rows }
    ensure
      db&.close
    end
  end

  def test_what_needs_more_than_the_usual_way
    in_both_ways(usual: false) { |db| -> { db.query("select :n + 1", n: 1).rows } }
    in_both_ways(usual: false) { |db| -> { db.prepare(odd).query(1).rows } }
    in_both_ways(usual: false) do |db|
      statement = kept(db, one, 1)
      statement.close
      -> { statement.query(1) }
    end
    in_both_ways(usual: false) do |db|
      statement = kept(db, one, 1)
      -> { db.transaction { statement.query(1).rows } }
    end
  end

  # Once somebody has listened, Ruby code is asked for all statements; so this has a process of its own.
  def test_a_listener
    script = <<~RUBY
      require "heddle/db"
      db = Heddle::DB.connect(ARGV[0])
      statement = db.prepare("select 1")
      told = []
      2.times { statement.query }
      db.on_query { |event| told << [event.sql, event.rows, event.cached] }
      2.times { statement.query }
      db.query("select 2")
      p told
    RUBY
    said = IO.popen([RbConfig.ruby, *$LOAD_PATH.flat_map { |path| ["-I", path] }, "-e", script, url], &:read)
    assert_equal "#{[["select 1", 1, true], ["select 1", 1, true], ["select 2", 1, false]].inspect}\n", said
  end

  %i[thread fiber].each do |wait|
    const_set((wait == :fiber) ? :InTasks : :InThreads, Module.new do
      define_method(:in_host) { |&block| (wait == :fiber) ? Heddle.run(&block) : block.call }
      define_method(:concurrently) { |&block| (wait == :fiber) ? Heddle.spawn(&block) : Thread.new(&block) }
      define_method(:pause) { sleep 0.001 }
    end)
  end
end

[UsualStatements::InThreads, UsualStatements::InTasks].each do |host|
  Class.new(Minitest::Test) do
    include UsualStatements
    include SQLiteHelpers
    include host

    hard_deadline 60

    define_singleton_method(:name) { "UsualStatementsOfSQLite#{host.name[/\w+\z/]}Test" }

    def url = "sqlite://#{@path}"

    def connect
      Heddle::DB.connect(url, busy_timeout: 0.05).tap do |db|
        db.query("create table if not exists t (n integer primary key, name text)")
        db.query("delete from t")
        db.query("insert into t values (1, 'a'), (2, 'b')")
        SQLiteHelpers::Sleeping.define(db)
      end
    end

    def insert = "insert into t (n) values (?)"

    def one = "select 1 where 1 = ?"

    # The driver has to look at it.
    def odd = "#{one};"

    def waiting = "select sleep(?)"

    # The database's lock is waited for, and nobody is left in the line.
    def test_a_locked_database
      found = in_both_ways do |db|
        statement = kept(db, insert, 3)
        holder = Heddle::DB.connect(url)
        holder.start_transaction
        lambda do
          [plain { statement.query(4) }[0], db.driver.instance_variable_get(:@waiting).size]
        ensure
          holder.close
        end
      end
      assert_equal [Heddle::DB::LockTimeout, 0], found
    end

    def test_another_thread_closes_the_statement_that_is_about_to_run
      db = connect
      statement = db.prepare(odd)
      trace = TracePoint.new(:return) do |point|
        Thread.new { statement.close }.join if point.method_id == :owns?
      end
      found = trace.enable(target_thread: Thread.current) { plain { statement.query(1).rows } }
      assert_equal Heddle::DB::StatementClosed, found[0]
    ensure
      db&.close
    end

    # It stays prepared as the text that was run.
    def test_a_text_that_changes_while_it_runs
      db = connect
      sql = +"select changed()"
      db.create_function("changed") { sql.replace("select 2") && 1 }
      2.times { assert_equal [[1]], db.query(sql.replace("select changed()")).rows }
      assert_equal [[2]], db.query("select 2").rows
    ensure
      db&.close
    end

    def test_after_a_transaction_that_only_reads
      in_both_ways(usual: false) do |db|
        statement = kept(db, insert, 3)
        db.driver.send(:note_needs, query_only: true)
        -> { statement.query(4).affected_rows }
      end
    end
  end

  Class.new(Minitest::Test) do
    include UsualStatements
    include PostgreSQLHelpers
    include host

    hard_deadline 60

    define_singleton_method(:name) { "UsualStatementsOfPostgreSQL#{host.name[/\w+\z/]}Test" }

    def url = postgresql.url

    def connect
      Heddle::DB.connect(url, timeout: 20).tap do |db|
        db.query("create temporary table t (n int primary key, name text)")
        db.query("insert into t values (1, 'a'), (2, 'b')")
      end
    end

    def insert = "insert into t (n) values (?)"

    def one = "select 1 where 1 = ?"

    # The driver has to look at it.
    def odd = one.encode("ISO-8859-1")

    def waiting = "select pg_sleep(?)"

    # Several at once, what changes the session, what ends a transaction, and what is no text.
    def test_new_sql_of_other_kinds
      latin = "select 'ä'".encode("ISO-8859-1")
      ["select 1; select 2", "set application_name = 'x'", "commit", "", latin].each do |sql|
        in_both_ways(usual: false) { |db| -> { db.query(sql).rows } }
      end
      in_both_ways(usual: false) { |db| -> { db.query(nil) } }
      in_both_ways(usual: false) { |db| db.query("begin") && -> { db.query("select 1").rows } }
    end

    def test_a_statement_that_the_server_has_lost
      found = in_both_ways do |db|
        statement = kept(db, one, 1)
        db.query("deallocate all")
        -> { statement.query(1).rows }
      end
      assert_equal [[1]], found
    end

    def test_the_server_ends_the_session
      found = in_both_ways do |db|
        statement = kept(db, "select pg_terminate_backend(pg_backend_pid()) where 1 = ?", 2)
        -> { statement.query(1) }
      end
      assert_equal Heddle::DB::ConnectionLost, found[0]
    end

    def test_a_handler_of_notices
      notices = []
      in_both_ways(usual: false) do |db|
        statement = kept(db, one, 1)
        db.query("create function pg_temp.say() returns int language plpgsql as 'begin raise notice ''said''; " \
          "return 1; end'")
        lambda do
          db.on_notice { |notice| notices << notice.message }
          [statement.query(1).rows, db.query("select pg_temp.say()").rows]
        end
      end
      assert_equal %w[said said], notices
    end
  end
end
