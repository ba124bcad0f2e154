# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"
require "support/scripted_mysql"

runs_on also: %i[newer_servers]

# Settings of one borrower of a pool's connection must not exist for the next.
class MySQLSessionTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  def with_pool(size: 1, **options)
    pool = Heddle::DB::Pool.new(mariadb.url, size: size, timeout: 10, **options)
    pool.exec("create or replace table session_rows (n int) engine=innodb")
    yield pool
  ensure
    pool&.close
  end

  def connect(**options) = Heddle::DB.connect(mariadb.url, timeout: 10, **options)

  def elsewhere(sql) = connect.then { |db| db.query_value(sql).tap { db.close } }

  CHANGES = {
    autocommit: ["set session autocommit = 0", "select @@autocommit"],
    sql_mode: ["set sql_mode = ''", "select @@sql_mode"],
    database: ["use mysql", "select database()"],
    variable: ["set @left = 1", "select @left"],
    variable_in_a_select: ["select @left := 1", "select @left"],
    variable_of_a_row: ["select 1 into @left", "select @left"],
    names: ["set names latin1",
      "select concat(@@character_set_client, @@collation_connection, @@character_set_results)"],
    time_zone: ["set time_zone = '+05:00'", "select @@time_zone"],
    isolation: ["set session transaction isolation level serializable", "select @@tx_isolation"],
    foreign_keys: ["set foreign_key_checks = 0", "select @@foreign_key_checks"],
    lock: ["select get_lock('left', 0)", "select is_free_lock('left')"],
    lock_written_otherwise: ["select GET_LOCK (?, 0)", "select is_free_lock('left')", "left"],
    statement: ["prepare left_behind from 'select 1'", "select 1"],
    lock_of_do: ["do get_lock('left', 0)", "select is_free_lock('left')"],
    lock_in_an_if: ["if get_lock('left', 0) then do 1; end if", "select is_free_lock('left')"],
    lock_in_a_block: ["begin not atomic do get_lock('left', 0); end", "select is_free_lock('left')"],
    variable_without_a_space: ["select@left:=1", "select @left"],
    variable_behind_a_string: ["select 'a@b', 'it\\'s', @left := 1", "select @left"],
    variable_of_diagnostics: ["get diagnostics @left = number", "select @left"],
    variable_of_an_analysis: ["analyze select @left := 1", "select @left"],
    variable_in_an_executed_comment: ["select 1 /*!, @left := 1 */", "select @left"]
  }.freeze

  CHANGES.each do |name, (change, check, *arguments)|
    define_method(:"test_#{name}_is_restored") do
      with_pool do |pool|
        thread, before = pool.with { |db| [db.driver.thread, db.query_value(check)] }
        3.times do
          pool.query(change, *arguments)
          assert_equal [thread, before], pool.with { |db| [db.driver.thread, db.query_value(check)] }
          assert_equal "ÄÖ€", pool.query_value("select ?", "ÄÖ€")
        end
      end
    end
  end

  # What MariaDB's reset leaves: then the next borrower gets another connection.
  def test_a_role_is_not_handed_on
    admin = connect
    admin.query("create or replace role lent")
    admin.query("grant lent to heddle")
    [[], ["set @left = 1"]].product([nil, "lent"]).each do |others, default|
      admin.query("set default role #{default || "none"} for heddle")
      with_pool do |pool|
        thread = pool.query_value("select connection_id()")
        pool.with { |db| others.each { |sql| db.query(sql) } }
        assert_equal [thread, default], pool.query_row("select connection_id(), current_role()")
        ["set role #{default ? "none" : "lent"}",
          "execute immediate 'set role #{default ? "none" : "lent"}'"].each do |change|
          pool.with { |db| [*others, change].each { |sql| db.query(sql) } }
          assert_equal [default, nil], pool.query_row("select current_role(), @left"), change
        end
      end
    end
  ensure
    admin&.query("set default role none for heddle")
    admin&.query("drop role if exists lent")
    admin&.close
  end

  # The reports are asked for again.
  def test_reports_that_were_switched_off
    with_pool do |pool|
      pool.with { |db| db.query("set session_track_state_change = 0") }
      pool.query("set sql_mode = ''")
      refute_equal "", pool.query_value("select @@sql_mode")
    end
  end

  def test_without_autocommit_no_write_is_lost
    with_pool do |pool|
      pool.exec("set session autocommit = 0")
      assert_equal 1, pool.exec("insert into session_rows values (1)")
      assert_equal 1, elsewhere("select count(*) from session_rows")
    end
  end

  def test_tables_are_unlocked_and_temporary_ones_gone
    with_pool do |pool|
      pool.exec("lock tables session_rows write")
      connect(timeout: 5).then { |db| db.exec("insert into session_rows values (1)") && db.close }
      pool.exec("create temporary table session_rows select 7 as n")
      assert_equal 1, pool.query_value("select n from session_rows")
      pool.exec("create or replace procedure leave_a_lock() select get_lock('of_a_procedure', 0)")
      pool.query("call leave_a_lock()")
      assert_equal 1, elsewhere("select is_free_lock('of_a_procedure')")
    end
  end

  # On a connection without a database, USE cannot be undone.
  def test_use_on_a_connection_without_a_database
    pool = Heddle::DB::Pool.new(mariadb.url.sub(%r{/heddle\z}, "/"), size: 1, timeout: 10)
    assert_nil pool.query_value("select database()")
    thread = pool.query_value("select connection_id()")
    pool.exec("set @a = 1")
    assert_equal [thread, nil], pool.query_row("select connection_id(), database()")
    pool.exec("use heddle")
    assert_nil pool.query_value("select database()")
    pool.close
  end

  # Nothing is sent for an unchanged session.
  def test_an_unchanged_session_is_not_reset
    with_pool(statement_cache: :always) do |pool|
      db = pool.with { |connection| connection }
      protocol = db.driver.instance_variable_get(:@protocol)
      asked = []
      protocol.define_singleton_method(:send_command) { |*arguments| asked << arguments.first && super(*arguments) }
      5.times { |n| pool.query_value("select ? + 1", n) }
      pool.transaction(isolation: :serializable) { pool.exec("insert into session_rows values (?)", 1) }
      pool.with { |connection| connection.prepare("select ?").query(1) }
      pool.each_row("select seq from seq_1_to_10", fetch: 3) { |_| nil }
      pool.query("select * from session_rows where n = 'a@b'")
      pool.query("select @@version, 'c@d' /* e@f */, `n` from session_rows -- g@h")
      pool.query("show tables")
      pool.query("explain select 1")
      pool.exec("create or replace table session_rows_too (n int)")
      pool.exec("drop table session_rows_too")
      pool.exec("insert into session_rows (n) values (?)", 7)
      pool.pipeline { |p| p.query("select 1") }
      assert_empty asked
      assert_equal 1, db.cached_statements # since the drop
      pool.exec("set @a = 1")
      assert_equal [0x1f, 0x02], asked
      5.times { |n| assert_equal n + 1, pool.query_value("select ? + 1", n) }
      assert_equal 1, db.cached_statements
    end
  end

  def test_statements_outlive_a_reset
    with_pool do |pool|
      statement = pool.with { |db| db.prepare("select ? + 1") }
      pool.exec("set @a = 1")
      pool.with do |db|
        assert_equal 3, statement.query(2)[0][0]
        db.transaction { assert_equal 4, statement.query(3)[0][0] }
        statement.close
        assert_equal 5, db.query_value("select 5")
      end
    end
  end

  # A server without COM_RESET_CONNECTION: the connection is closed, and the next is a new one.
  def test_a_session_that_cannot_be_reset
    with_pool do |pool|
      thread = pool.query_value("select connection_id()")
      pool.with do |db|
        db.driver.define_singleton_method(:reset_session) { false }
        db.exec("set @a = 1")
      end
      refute_equal thread, pool.query_value("select connection_id()")
      assert_nil pool.query_value("select @a")
    end
  end

  S = ScriptedMySQL

  # Without tracking every statement that is not plain counts as a change.
  def test_a_server_that_does_not_report_changes
    asked = Thread::Queue.new
    server = S.new do |peer|
      peer.welcome(capabilities: S::CAPABILITIES & ~(1 << 23))
      loop do
        asked << (request = peer.request)
        (request.getbyte(0) == 0x16) ? peer.write(1, S.prepared(0)) : peer.ok
      end
    end
    pool = Heddle::DB::Pool.new(server.url, size: 1, timeout: 5)
    pool.exec("insert into t values (1)")
    assert_equal [0x16, 0x17], Array.new(asked.size) { asked.pop.getbyte(0) }
    pool.exec("set sql_mode = ''")
    wait_until { asked.size == 6 }
    sent = Array.new(6) { asked.pop }
    assert_equal ["\x03set sql_mode = ''", "\x1f", "\x02base",
      "\x03SET NAMES utf8mb4 COLLATE utf8mb4_general_ci, time_zone = '+00:00'", "\x03SET ROLE DEFAULT",
      "\x03SELECT @@activate_all_roles_on_login"], sent
  ensure
    pool&.close
    server&.close
  end

  # MySQL reports the state of a transaction with the same flag.
  def test_trackers_that_report_no_change_of_the_session
    state = "\x05\x09\x08T_______"
    unread = ["", "\0", "\0\0", "\0\x09\x05", "\0\x02\x06\0", "\0\x03\x02\x011", "\0\x0e#{state}\x02\x011"]
    [["\0\x0b#{state}", false], ["\0\x0f\x04\x02\x01a#{state}", false],
      *unread.map { |trackers| [trackers, true] }].each do |trackers, changed|
      asked = Thread::Queue.new
      server = S.new do |peer|
        peer.welcome
        loop do
          asked << peer.request.getbyte(0)
          peer.write(1, S.ok(status: 0x4002).b + trackers.b)
        end
      end
      pool = Heddle::DB::Pool.new(server.url, size: 1, timeout: 5)
      pool.with { |db| db.driver.command("commit") }
      pool.close
      assert_equal changed ? [3, 0x1f] : [3], Array.new(asked.size) { asked.pop }.first(2), trackers.inspect
    ensure
      server&.close
    end
  end

  # ---- transactions of a pool

  def test_queries_of_the_pool_join_its_transaction
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].each do |host|
      host.call do
        with_pool do |pool|
          assert_raises(RuntimeError) do
            pool.transaction do
              pool.exec("insert into session_rows values (1)")
              pool.transaction { |db| db.exec("insert into session_rows values (2)") }
              pool.with { |db| assert_equal [1, 2], db.query_column("select n from session_rows order by n") }
              assert_equal 2, pool.pipeline { |p| [p.query("select count(*) from session_rows")] }[0].value[0][0]
              raise "roll back"
            end
          end
          assert_equal 0, pool.query_value("select count(*) from session_rows")
          pool.with do |db|
            db.transaction { pool.exec("insert into session_rows values (3)") }
            db.start_transaction
            pool.exec("insert into session_rows values (4)")
            db.rollback
          end
          assert_equal [3], pool.query_column("select n from session_rows")
          assert_equal({connections: 1, free: 1, waiting: 0}, pool.stats)
        end
      end
    end
  end

  def test_another_task_or_thread_does_not_join
    with_pool(size: 2) do |pool|
      pool.transaction do
        pool.exec("insert into session_rows values (1)")
        assert_equal 0, Thread.new { pool.query_value("select count(*) from session_rows") }.value
      end
      Heddle.run do
        pool.transaction do
          pool.exec("insert into session_rows values (2)")
          assert_equal 1, Heddle.spawn { pool.query_value("select count(*) from session_rows") }.value
        end
      end
    end
  end

  # A connection that is lost in a transaction belongs to no transaction any more.
  def test_after_a_lost_connection_no_transaction_can_be_joined
    with_pool do |pool|
      pool.with do |db|
        db.start_transaction
        db.driver.stream.close
      end
      assert_equal 1, pool.query_value("select 1")
    end
  end
end
