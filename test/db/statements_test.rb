# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/postgresql_server"
require "support/sqlite_helpers"

# A statement is run in C, and Ruby code is called for policy alone: what it is called for, and that nothing comes
# between the check of the caller and the beginning.
module Statements
  DB = Heddle::DB

  # An argument whose conversion is the block.
  class Converted
    def initialize(&work) = @work = work

    def acts_like?(_kind) = true

    def to_time = @work.call
  end

  # @return [Array<Symbol>] the methods of Ruby code that the block's calls run
  def ruby_calls
    calls = []
    trace = TracePoint.new(:call) { |point| calls << point.method_id }
    assert_equal 1, trace.enable(target_thread: Thread.current) { yield }.instance_variable_get(:@rows).size
    calls
  end

  # Ends the sleep in a function of SQL.
  def wake(thread)
    thread.wakeup
  rescue ThreadError
    nil # it has ended
  end

  def outcome
    yield
  rescue Exception => error # standard:disable Lint/RescueException
    error
  end

  def in_host_with
    in_host do
      db = connect
      yield db
    ensure
      db&.close
    end
  end

  def kept(db, sql, *first)
    statement = db.prepare(sql)
    outcome { statement.query(*first) } # which looks at the kind of the text
    statement
  end

  def busy?(db) = db.send(:busy?)

  def test_a_statement_of_a_transaction_crosses_into_c_once
    in_host_with do |db|
      statement = kept(db, sql = one, 1)
      db.transaction do
        db.query(sql, 1) # stays prepared from now on
        assert_equal [:query], ruby_calls { db.query(sql, 1) }
        assert_equal [:query], ruby_calls { statement.query(1) }
      end
      assert_equal [:query], ruby_calls { statement.query(1) }
    end
  end

  # The connection is not lost because the caller's own code has raised an error of the system.
  def test_an_error_of_the_system_in_an_argument
    [Errno::ENOENT, IOError].each do |type|
      failing = Converted.new { raise type }
      in_host_with do |db|
        statement = kept(db, one, 1)
        [-> { statement.query(failing) }, -> { db.query(one, failing) }].each do |ask|
          assert_equal type, outcome(&ask).class
          assert_equal [[1]], statement.query(1).rows
        end
      end
    end
  end

  # What is sent before the close has come to its end may be executed: nobody is told that it was not sent.
  def test_a_statement_that_begins_in_the_middle_of_a_close
    db = connect
    statement = kept(db, waiting, 0)
    test, first = self, nil
    db.driver.define_singleton_method(:close) do
      first ||= Thread.new { test.outcome { statement.query(30) } }
      sleep 0.001 until test.busy?(db) || !first.alive?
      super()
    end
    db.close
    wake(first) until first.join(0.01)
    assert_kind_of DB::ConnectionLost, first.value
    assert_includes first.value.message, "may or may not"
    assert_includes outcome { db.query("select 1") }.message, "nothing was sent"
  end

  # Once somebody has listened, Ruby code is called for all statements; so this has a process of its own.
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
    end)
  end

  def self.test_on(database, helpers, &block)
    [InThreads, InTasks].each do |host|
      Class.new(Minitest::Test) do
        include Statements
        include helpers
        include host

        hard_deadline 60

        define_singleton_method(:name) { "StatementsOf#{database}#{host.name[/\w+\z/]}Test" }
        class_eval(&block)
      end
    end
  end

  test_on("SQLite", SQLiteHelpers) do
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
      in_host_with do |db|
        statement = kept(db, insert, 3)
        holder = Heddle::DB.connect(url)
        holder.start_transaction
        assert_raises(Heddle::DB::LockTimeout) { statement.query(4) }
        assert_empty db.driver.instance_variable_get(:@waiting)
      ensure
        holder&.close
      end
    end

    def test_another_thread_closes_the_statement_that_is_about_to_run
      in_host_with do |db|
        statement = db.prepare(odd)
        trace = TracePoint.new(:return) do |point|
          Thread.new { statement.close }.join if point.method_id == :owns?
        end
        found = trace.enable(target_thread: Thread.current) { outcome { statement.query(1) } }
        assert_kind_of Heddle::DB::StatementClosed, found
      end
    end

    # It stays prepared as the text that was run.
    def test_a_text_that_changes_while_it_runs
      in_host_with do |db|
        sql = +"select changed()"
        db.create_function("changed") { sql.replace("select 2") && 1 }
        2.times { assert_equal [[1]], db.query(sql.replace("select changed()")).rows }
        assert_equal [[2]], db.query("select 2").rows
      end
    end

    def test_after_a_transaction_that_only_reads
      in_host_with do |db|
        statement = kept(db, insert, 3)
        db.driver.send(:attend, query_only: true)
        assert_equal 1, statement.query(4).affected_rows
      end
    end
  end

  test_on("MariaDB", MariaDBHelpers) do
    def url = mariadb.url

    def connect = Heddle::DB.connect(url, timeout: 20)

    def one = "select 1 from dual where 1 = ?"

    def waiting = "select sleep(?)"
  end

  test_on("PostgreSQL", PostgreSQLHelpers) do
    def url = postgresql.url

    def connect = Heddle::DB.connect(url, timeout: 20)

    def one = "select 1 where 1 = ?"

    def waiting = "select pg_sleep(?)"

    def test_a_handler_of_notices
      in_host_with do |db|
        notices = []
        statement = kept(db, one, 1)
        db.query("create function pg_temp.say() returns int language plpgsql as 'begin raise notice ''said''; " \
          "return 1; end'")
        db.on_notice { |notice| notices << notice.message }
        assert_equal [[[1]], [[1]]], [statement.query(1).rows, db.query("select pg_temp.say()").rows]
        assert_equal %w[said], notices
      end
    end
  end
end
