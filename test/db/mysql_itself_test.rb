# frozen_string_literal: true

require "test_helper"
require "bigdecimal"
require "date"
require "json"
require "heddle/db"
require "support/stream_helpers"
require "support/mysql_server"

# What MySQL itself does in another way than MariaDB.
class MySQLItselfTest < Minitest::Test
  include StreamHelpers
  include MySQLHelpers

  hard_deadline 60

  def connect(**options) = Heddle::DB.connect(mysql.url, timeout: 20, **options)

  def with_connection(**options)
    db = connect(**options)
    yield db
  ensure
    db&.close
  end

  def with_pool(**options)
    pool = Heddle::DB::Pool.new(mysql.url, size: 1, timeout: 20, **options)
    yield pool
  ensure
    pool&.close
  end

  def in_tasks_and_threads(&block)
    block.call
    Heddle.run(&block)
  end

  def test_statements_of_several_tasks_share_no_connection
    with_pool(multiplex: 4) do |pool|
      error = assert_raises(ArgumentError) { pool.query("select 1") }
      refused = %r{\Amultiplex: is not for MySQL at \S+ \(\d+\.\d+\.\d+.*\): it runs a new statement only}
      assert_match(refused, error.message)
    end
  end

  # ---- kept statements: the server fixes the types of their parameters at the first execution

  VALUES = [1, "eve", nil, 2.5, "2abc", BigDecimal("1.5"), 12345678901234567, 2**64 - 1, 10**30, true, "eve".b,
    Date.new(2024, 1, 2), Time.utc(2024, 1, 2, 3, 4, 5), Heddle::DB::Duration.new(3_723_000_000)].freeze

  QUERIES = ["select ?", "select json_object('v', ?)", "select coalesce(?, 'x')", "select ifnull(?, 5)",
    "select count(*) from people where name = ?", "select name from people where id <= ?", "select concat(?, '-')",
    "select json_set('{}', '$.x', ?)", "select greatest(?, 1)"].freeze

  PEOPLE = ["create temporary table people (id int primary key, name varchar(40))",
    "insert into people values (0, '2abc'), (1, 'ann'), (2, 'eve')"].freeze

  # As the server answers a new statement.
  def outcome
    yield.rows
  rescue Heddle::DB::ServerError => error
    error.code
  end

  WAYS = {
    transaction: [{}, ->(db, sql, values, outcome) do
      db.transaction { values.map { |value| outcome.call { db.query(sql, value) } } }
    end],
    always: [{statement_cache: :always}, ->(db, sql, values, outcome) do
      values.map { |value| outcome.call { db.query(sql, value) } }
    end],
    statement: [{}, ->(db, sql, values, outcome) do
      db.prepare(sql).then { |statement| values.map { |value| outcome.call { statement.query(value) } } }
    end],
    virtual: [{}, ->(db, sql, values, outcome) do
      virtual = Heddle::DB.virtual_statement(mysql: sql)
      values.map { |value| outcome.call { db.query(virtual, value) } }
    end],
    pipeline: [{}, ->(db, sql, values, outcome) do
      futures = db.pipeline { |pipeline| values.map { |value| pipeline.query(sql, value) } }
      futures.map { |future| outcome.call { future.value } }
    end],
    pipeline_in_a_transaction: [{}, ->(db, sql, values, outcome) do
      futures = db.transaction { db.pipeline { |pipeline| values.map { |value| pipeline.query(sql, value) } } }
      futures.map { |future| outcome.call { future.value } }
    end],
    rows: [{}, ->(db, sql, values, outcome) do
      values.map { |value| outcome.call { Struct.new(:rows).new(db.each_row(sql, value, fetch: 1).to_a) } }
    end]
  }.freeze

  def test_values_of_several_types_for_one_statement
    values = VALUES + VALUES.reverse
    new = with_connection(statement_cache: :never) do |db|
      PEOPLE.each { |sql| db.exec(sql) }
      QUERIES.to_h { |sql| [sql, values.map { |value| outcome { db.query(sql, value) } }] }
    end
    WAYS.each do |name, (options, way)|
      in_tasks_and_threads do
        with_connection(**options) do |db|
          PEOPLE.each { |sql| db.exec(sql) }
          QUERIES.each { |sql| assert_equal new[sql], way.call(db, sql, values, method(:outcome)), "#{name}: #{sql}" }
        end
      end
    end
  end

  def test_kept_statements_of_a_pool
    with_pool do |pool|
      statement = pool.prepare("select json_object('v', ?)")
      assert_equal [1, "text", nil, 1], [1, "text", nil, 1].map { |v| JSON.parse(statement.query(v)[0][0])["v"] }
    end
  end

  # As the server counts them.
  def prepared(db)
    counts = db.driver.command("show session status like 'Com_stmt_%prepare'").rows.to_h
    counts["Com_stmt_prepare"].to_i - counts["Com_stmt_reprepare"].to_i # without what the server does by itself
  end

  def on_server(db) = db.driver.command("show global status like 'Prepared_stmt_count'").rows[0][1].to_i

  # A statement has a form for each combination of types, and not for each NULL of an insert.
  def test_types_that_stay_cost_no_prepare
    with_connection(statement_cache: :always) do |db|
      before = prepared(db)
      count = -> { (prepared(db) - before).tap { before = prepared(db) } }
      db.exec("create temporary table wide (a int, b varchar(9), c double, d datetime)")
      count.call
      20.times { |n| db.query("select ? + ?", n, 1.5) }
      assert_equal 1, count.call
      20.times { |n| db.query("select ?", n.even? ? n : n.to_s) }
      assert_equal 2, count.call
      row = [1, "x", 1.5, Time.at(0)]
      rows = Array.new(16) { |n| row.each_with_index.map { |value, index| value if n[index] > 0 } }
      2.times { rows.each { |row| db.exec("insert into wide values (?, ?, ?, ?)", *row) } }
      assert_operator count.call, :<=, 16
      2.times { rows.each { |row| db.exec("insert into wide values (?, ?, ?, ?)", *row) } }
      assert_equal 0, count.call
      assert_equal rows.map { |row| row.map(&:nil?) }.tally.transform_values { |n| 4 * n },
        db.query("select * from wide").map { |row| row.map(&:nil?) }.tally
    end
  end

  # The server has at most four forms of a statement, and none of a closed one.
  def test_forms_are_closed
    with_connection do |db|
      wait_until(what: "the end of former connections") { on_server(db).zero? }
      statement = db.prepare("select ?")
      3.times { VALUES.each { |value| statement.query(value) } }
      db.flush_closes
      wait_until { on_server(db) == 4 }
      statement.close
      db.flush_closes
      wait_until { on_server(db).zero? }
      Thread.new { db.prepare("select ? + 1").then { |kept| [1, "1", 1.5].each { |value| kept.query(value) } } }.join
      wait_until(20, what: "the collection of the statement") do
        GC.start
        db.query("select 1")
        db.flush_closes
        on_server(db).zero?
      end
    end
  end

  def test_another_form_when_the_server_has_no_room
    with_connection do |admin|
      wait_until(what: "the end of former connections") { on_server(admin).zero? }
      with_connection(statement_cache: :always) do |db|
        10.times { |n| db.query("select #{n} + ?", 1) }
        statement = db.prepare("select ?")
        assert_equal 1, statement.query(1)[0][0]
        admin.driver.command("set global max_prepared_stmt_count = #{on_server(admin)}")
        assert_equal "text", statement.query("text")[0][0]
        assert_equal 0, db.cached_statements
        admin.driver.command("set global max_prepared_stmt_count = 0")
        assert_raises(Heddle::DB::ServerError) { statement.query(1.5) }
        assert_equal [1, "text"], [1, "text"].map { |value| statement.query(value)[0][0] }
      end
    ensure
      admin.driver.command("set global max_prepared_stmt_count = default")
    end
  end

  # ---- statements that cannot be prepared

  def test_statements_that_go_as_text_in_each_way
    in_tasks_and_threads do
      with_connection do |db|
        db.exec("drop table if exists undone")
        db.exec("create table undone (n int) engine=innodb")
        db.pipeline do |pipeline|
          ["begin", "insert into undone values (1)", "savepoint s", "rollback"].map { |sql| pipeline.query(sql) }
        end.each(&:value)
        assert_equal 0, db.query_value("select count(*) from undone")
        futures = db.pipeline do |pipeline|
          ["lock tables undone write", "unlock tables", "help 'select'"].map { |sql| pipeline.query(sql) }
        end
        assert_equal [0, 0, 1], futures.map { |future| future.value.rows.size }
        assert_equal db.query("help 'select'").rows, db.each_row("help 'select'").to_a
        assert_equal [], db.each_row("handler undone open").to_a # which is prepared first, and refused
        assert_equal [], db.query("handler undone read first").rows
        db.pipeline { |pipeline| pipeline.query("handler undone close") }
        db.exec("drop table undone")
      end
    end
  end

  def test_no_room_for_statements_in_each_way
    with_connection do |admin|
      admin.driver.command("set global max_prepared_stmt_count = 0")
      with_connection do |db|
        values = db.pipeline { |p| [p.query("select 7"), p.query("select ?", 7), p.query("select 8")] }
        assert_equal [[[7]], [[8]]], [values[0].value.rows, values[2].value.rows]
        assert_match(/max_prepared_stmt_count/, assert_raises(Heddle::DB::StatementLimit) { values[1].value }.message)
        assert_equal [[7]], db.each_row("select 7").to_a
        assert_raises(Heddle::DB::StatementLimit) { db.each_row("select ?", 7).to_a }
        assert_equal [[7]], db.transaction { db.query("select 7") }.rows
      end
      with_connection(statement_cache: :always) do |db|
        wait_until(what: "the end of former connections") { on_server(admin).zero? }
        admin.driver.command("set global max_prepared_stmt_count = 20")
        20.times { |n| db.query("select #{n} + ?", 1) }
        futures = db.pipeline { |p| [p.query("select ?", 7), p.query("select ? + 1", 7)] }
        assert_equal [7, 8], futures.map { |future| future.value[0][0] }
      end
    ensure
      admin.driver.command("set global max_prepared_stmt_count = default")
    end
  end

  # What a procedure does before it fails is done, also on this server.
  def test_a_statement_that_has_begun_is_not_sent_again
    with_connection(statement_cache: :always) do |db|
      db.exec("drop table if exists done")
      db.exec("create table done (n int) engine=myisam")
      [1235, 1295, 1243, 1461, 1615].each do |number|
        db.exec("drop procedure if exists fails")
        db.exec("create procedure fails() begin insert into done values (1); signal sqlstate 'HY000' " \
          "set mysql_errno = #{number}, message_text = 'so'; end")
        statement = db.prepare("call fails()")
        [-> { db.query("call fails()") }, -> { statement.query }, -> { db.each_row("call fails()").to_a },
          -> { db.pipeline { |p| p.query("call fails()") }.value }].each do |run|
          db.exec("truncate done")
          assert_equal number, assert_raises(Heddle::DB::ServerError, &run).code
          assert_equal 1, db.query_value("select count(*) from done"), number
        end
      end
      db.exec("drop procedure fails")
      db.exec("drop table done")
    end
  end

  def test_classes_of_its_own_errors
    in_tasks_and_threads do
      with_connection do |db|
        db.exec("create database if not exists only_read")
        db.exec("alter database only_read read only = 1")
        assert_raises(Heddle::DB::ReadOnly) { db.exec("create table only_read.t (n int)") }
        with_connection do |other|
          db.query("select get_lock('a', 1)")
          other.query("select get_lock('b', 1)")
          waiter = Thread.new do
            db.query("select get_lock('b', 10)")
          rescue Heddle::DB::ServerError => error
            error
          end
          wait_until { other.query_value("select count(*) from sys.processlist where state = 'User lock'").positive? }
          error = assert_raises(Heddle::DB::DeadlockDetected) { other.query("select get_lock('a', 10)") }
          assert_predicate error, :retryable?
          other.query("select release_all_locks()")
          assert_equal 1, waiter.value[0][0]
        end
      ensure
        db.exec("alter database only_read read only = 0")
        db.exec("drop database only_read")
      end
    end
  end

  def test_a_wrong_password_without_the_key
    url = mysql.url.sub(/\?.*/, "").sub(mysql.password, "wrong")
    error = assert_raises(Heddle::DB::LoginFailed) { Heddle::DB.connect(url, timeout: 20) }
    assert_match(/the password is wrong, or/, error.message)
  end

  # ---- diagnostics

  def test_diagnostics_are_those_of_the_statement_before
    with_connection do |db|
      warn = -> { assert_equal 2, db.query("select 1/0, cast('x' as signed)").warnings }
      warn.call
      assert_equal [1365, 1292], db.query("show warnings").map { |row| row[1] }
      assert_equal [2], db.query("show count(*) warnings").first
      ["@@warning_count", "@@session.warning_count", "@@ERROR_COUNT + 2"].each do |count|
        warn.call
        assert_equal 2, db.query_value("select #{count}"), count
      end
      warn.call
      db.query("get diagnostics @n = number")
      assert_equal 2, db.query_value("select @n")
      assert_raises(Heddle::DB::ServerError) { db.query("selekt ?", 1) }
      assert_equal [1064], db.query("show errors").map { |row| row[1] }
      warn.call
      assert_equal [1365, 1292], db.pipeline { |p| p.query("show warnings") }.value.map { |row| row[1] }
    end
  end

  # ---- sessions

  CHANGES = {
    role: ["set role lent", "select current_role()"],
    lock_of_do: ["do get_lock('left', 0)", "select is_free_lock('left')"],
    variable_of_do: ["do @left := 1", "select @left"],
    variable_without_a_space: ["select@left:=1", "select @left"],
    variable_of_diagnostics: ["get diagnostics @left = number", "select @left"],
    variable_of_an_analysis: ["explain analyze select @left := 1", "select @left"],
    database: ["use mysql", "select database()"],
    isolation: ["set transaction isolation level serializable", "select 1"],
    temporary_table: ["create temporary table heddle.left_behind select 1 as n",
      "select count(*) from performance_schema.table_handles where object_name = 'left_behind'"],
    reports: ["set session_track_state_change = 0", "select @@session_track_state_change"]
  }.freeze

  def test_no_change_of_a_session_is_handed_on
    with_connection do |admin|
      admin.exec("create role if not exists lent")
      admin.exec("grant lent to heddle")
      CHANGES.each do |name, (change, check)|
        with_pool do |pool|
          before = pool.query_row("select connection_id(), (#{check})")
          2.times do
            pool.query(change)
            assert_equal before, pool.query_row("select connection_id(), (#{check})"), name
          end
        end
      end
    ensure
      admin.exec("drop role if exists lent")
    end
  end

  # A transaction's beginning and end carry the flag of a changed session.
  def test_a_transaction_does_not_reset_the_session
    in_tasks_and_threads do
      with_pool(statement_cache: :always) do |pool|
        thread = pool.query_value("select connection_id()")
        kept = pool.with(&:cached_statements)
        3.times do
          pool.transaction { |db| db.query("select connection_id()") }
          pool.transaction(isolation: :serializable, read_only: true) { pool.query("select connection_id()") }
        end
        assert_equal [thread, kept], pool.with { |db| [db.driver.thread, db.cached_statements] }
        pool.exec("set @left = 1")
        assert_nil pool.query_value("select @left")
      end
    end
  end

  def test_a_server_that_activates_all_roles_at_the_login
    with_connection do |admin|
      admin.exec("create role if not exists lent")
      admin.exec("grant lent to heddle")
      admin.exec("set global activate_all_roles_on_login = on")
      with_pool do |pool|
        before = pool.query_row("select connection_id(), current_role()")
        assert_equal "`lent`@`%`", before[1]
        2.times do
          pool.query("set role none")
          assert_equal before, pool.query_row("select connection_id(), current_role()")
        end
      end
    ensure
      admin.exec("set global activate_all_roles_on_login = off")
      admin.exec("drop role if exists lent")
    end
  end

  # ---- ends of connections

  def test_a_session_that_was_killed_or_idle_for_too_long
    in_tasks_and_threads do
      [{}, {tls: {verify: false}}].each do |options|
        with_connection do |killer|
          with_connection(**options) do |db|
            killer.exec("kill #{db.driver.thread}")
            wait_until { !db.healthy? }
            assert_raises(Heddle::DB::ConnectionLost) { db.query("select 1") }
          end
        end
        with_connection(**options) do |db|
          db.exec("set wait_timeout = 1")
          wait_until(20) { !db.healthy? }
          error = assert_raises(Heddle::DB::ConnectionLost) { db.query("select 1") }
          assert_equal 4031, error.cause.code
        end
      end
    end
  end
end
