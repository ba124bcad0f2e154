# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"

# The cost of preparing and closing, and what happens when the server has as many statements as it allows.
class MySQLStatementsTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 120

  def setup
    @server = mariadb
    @admin = Heddle::DB.connect(@server.url, timeout: 20)
  end

  def teardown
    return unless @admin

    @admin.driver.command("set global max_prepared_stmt_count = 16382")
    @admin.close
  end

  def with_connection(**options)
    db = Heddle::DB.connect(@server.url, timeout: 20, **options)
    yield db
  ensure
    db&.close
  end

  WAYS_TO_RUN = {
    query: ->(db, sql, values) { db.query(sql, *values) },
    told: ->(db, sql, values) { db.on_query { nil } && db.query(sql, *values) },
    transaction: ->(db, sql, values) { db.transaction { db.query(sql, *values) } },
    open_transaction: ->(db, sql, values) { db.in_transaction? || db.start_transaction and db.query(sql, *values) },
    pipeline: ->(db, sql, values) { db.pipeline { |pipeline| 2.times { pipeline.query(sql, *values) } } },
    cursor: ->(db, sql, values) { db.each_row(sql, *values, fetch: 1) { nil } },
    left_cursor: ->(db, sql, values) { db.each_row(sql, *values, fetch: 1) { break } },
    prepared: ->(db, sql, values) { db.prepare(sql).then { |one| one.query(*values) && one.close } }
  }.freeze
  # Also ones that the server refuses to prepare, and refuses to run.
  STATEMENTS = [["select 1"], ["select ?", 5], ["insert into counted values (?)", 1], ["select seq from seq_1_to_3"],
    ["select nowhere"], ["select nowhere + ?", 1], ["insert into counted values (?)", "x"],
    ["insert into counted values ('x')"], ["call nowhere()"], ["set @a = 1"], ["show tables"]].freeze

  # By each way to run a statement, in each mode of the cache. How many wait differs: behind an error in a transaction
  # the driver asks whether that is still open, and takes the close along.
  def test_what_the_server_has_open_is_kept_or_waits_to_be_closed
    others = on_server
    wrong = %i[never virtual always].product(WAYS_TO_RUN.keys).flat_map do |cache, way|
      with_connection(statement_cache: cache) do |db|
        db.query("create temporary table counted (a int)")
        db.flush_closes
        db.ping
        # The server ends the connection before a little after its close.
        wait_until(what: "no other statements") { on_server - db.cached_statements == others }
        STATEMENTS.filter_map do |sql, *values|
          2.times { quietly { WAYS_TO_RUN.fetch(way).call(db, sql, values) } }
          GC.start if way == :prepared # of those that were refused
          known, open = db.cached_statements + db.driver.closes, on_server - others
          fine = (way == :prepared) ? known <= open : known == open
          [cache, way, sql, known, open] unless fine
        end
      end
    end
    assert_empty wrong
  end

  def quietly
    yield
  rescue Heddle::DB::ServerError
    nil
  end

  # The server's answer for a cursor begins with the columns of the SELECT, and goes on with those of the analysis.
  def test_a_cursor_over_an_analysis
    with_connection do |db|
      ["analyze select 1", "analyze format=json select 1", "/* x */ analyze select seq from seq_1_to_3"].each do |sql|
        columns, rows = db.query(sql).then { |result| [result.columns, result.rows] }
        assert_equal rows.map(&:size), db.each_row(sql, fetch: 1).map(&:size)
        assert_equal rows.map { |row| row.map(&:class) }, db.prepare(sql).query.rows.map { |row| row.map(&:class) }
        refute_empty columns
      end
      analysis = db.query("analyze select ?", 1).rows
      2.times { assert_equal analysis.map(&:size), db.each_row("analyze select ?", 1).map(&:size) }
    end
  end

  # As the server counts them; without our own statement.
  def on_server
    @admin.driver.command("show global status like 'Prepared_stmt_count'").rows[0][1].to_i
  end

  def limit(count)
    @admin.driver.command("set global max_prepared_stmt_count = #{count}")
  end

  # Of a child that runs the block.
  def exit_status_of
    pid = fork do
      yield
    ensure
      exit!(2)
    end
    Process.wait2(pid).last.exitstatus
  end

  # What the block adds to the stream's statistics.
  def spent(db)
    before = db.driver.stream.statistics
    yield
    db.driver.stream.statistics.to_h { |key, value| [key, value - before[key]] }
  end

  def protocol(db)
    db.driver.instance_variable_get(:@protocol)
  end

  def test_new_sql_takes_one_packet_and_at_most_five_system_calls
    with_connection do |db|
      10.times { |n| db.query("select #{n}, ?", n) }
      spent = spent(db) { 50.times { |n| db.query("select -#{n}, ?", n) } }
      assert_equal 50, spent[:sends]
      assert_operator spent[:system_calls], :<=, 250
      assert_operator spent[:receives], :<=, 100
    end
  end

  def test_closes_piggyback_on_the_next_request
    with_connection do |db|
      before = on_server
      100.times { |n| db.query("select #{n}") }
      assert_equal before + 1, on_server
      assert_equal 1, protocol(db).closes
      statement = db.prepare("select 1")
      spent = spent(db) { statement.close }
      assert_equal 0, spent[:system_calls]
      assert_equal before + 1, on_server # still that one alone: the prepare took the other along
      db.query("select 1")
      assert_equal before + 1, on_server
      db.flush_closes
      assert_equal 0, protocol(db).closes
      wait_until(what: "the closes' arrival") { on_server == before }
    end
  end

  # No request follows: the thread that keeps deadlines sends them.
  def test_closes_of_an_idle_connection_are_sent_after_a_second
    with_connection(tls: {ca_file: @server.ca_file}) do |encrypted|
      encrypted.query("select 1")
      with_connection do |db|
        before = on_server
        kept = db.prepare("select 1")
        3.times { |n| db.query("select #{n}") }
        db.prepare("select 7").close
        assert_equal 1, protocol(db).closes
        spent = spent(db) { wait_until(10, what: "the closes to be sent") { protocol(db).closes.zero? } }
        assert_equal 1, spent[:sends]
        wait_until(what: "the closes' arrival") { on_server == before + 1 } # the one that is kept
        assert_equal 1, kept.query[0][0]
        assert_equal 8, db.query_value("select ? + 1", 7)
        assert_equal 1, protocol(encrypted).closes # see doc/limits.md
      end
    end
  end

  def test_closes_of_an_idle_connection_in_a_task
    Heddle.run do
      with_connection do |db|
        before = on_server
        db.query("select 1")
        wait_until(10, what: "the closes' arrival") { on_server == before }
        assert_equal 8, db.query_value("select ? + 1", 7)
      end
    end
  end

  # The exchange belongs to the parent.
  def test_a_child_sends_no_closes_of_its_parents_connections
    with_connection do |db|
      db.query("select 1")
      status = exit_status_of do
        with_connection do |own|
          own.query("select 1")
          wait_until(10, what: "the closes to be sent") { protocol(own).closes.zero? }
          exit!((protocol(db).closes == 1) ? 0 : 1)
        end
      end
      assert_equal 0, status
    end
  end

  # One alone would be a packet for each query: it waits for the next request, or for a second. Over TLS it is not
  # sent later.
  def test_closes_of_a_connection_that_goes_back_to_its_pool
    [[{}, 1], [{tls: {ca_file: @server.ca_file}}, 0]].each do |options, left|
      pool = Heddle::DB::Pool.new(@server.url, size: 1, timeout: 20, **options)
      # Otherwise late reports of closed connections would look like closes.
      wait_until(what: "the end of former connections") { on_server.zero? }
      db = pool.with { |connection| connection.tap { connection.query("select 1") } }
      assert_equal left, protocol(db).closes
      pool.with { |connection| Array.new(9) { |n| connection.prepare("select #{n}") }.each(&:close) }
      assert_equal 0, protocol(db).closes
      wait_until(what: "the closes' arrival") { on_server.zero? }
    ensure
      pool&.close
    end
  end

  def test_the_number_of_pending_closes_is_bounded
    wait_until(what: "the end of former connections") { on_server.zero? }
    with_connection do |db|
      before = on_server
      statements = Array.new(150) { |n| db.prepare("select #{n}") }
      assert_equal before + 150, on_server
      statements.each(&:close)
      assert_operator protocol(db).closes, :<=, 64
      wait_until(what: "the closes' arrival") { on_server <= before + 64 }
    end
  end

  def test_collected_statements_are_closed
    with_connection do |db|
      before = on_server
      make = -> { 100.times { |n| db.prepare("select #{n}").query } && nil }
      Thread.new(&make).join # its stack goes with it
      wait_until(what: "the statements' end") do
        GC.start
        db.query("select 1")
        db.flush_closes
        on_server <= before + 5
      end
    end
  end

  # Freed after their connection, and statements of a connection that was closed.
  def test_the_ends_of_connections_and_statements_in_any_order
    Thread.new do
      20.times do
        db = Heddle::DB.connect(@server.url, timeout: 20)
        statements = Array.new(5) { |n| db.prepare("select #{n}") }
        statements.first.close
        db.close
        statements.each(&:close)
      end
    end.join
    GC.start
    assert_equal 1, @admin.query_value("select 1")
  end

  def test_a_hundred_thousand_statements
    limit(64)
    with_connection do |db|
      most = 0
      100_000.times do |n|
        assert_equal n, db.query("select ? + #{n}", 0)[0][0]
        most = [most, on_server].max if n % 5000 == 4999
      end
      assert_operator most, :<=, 4
    end
    with_connection(statement_cache: :always, statement_cache_size: 1000) do |db|
      300.times { |n| assert_equal n, db.query("select ? + #{n}", 0)[0][0] }
      assert_operator on_server, :<=, 64
    end
  end

  def test_the_cache_evicts_the_least_recently_used
    with_connection(statement_cache: :always, statement_cache_size: 2) do |db|
      released = []
      db.driver.define_singleton_method(:release) do |handle|
        super(handle.tap { released << handle.columns.names.first })
      end
      %w[a b a a].each { |name| assert_equal 1, db.query("select ? as #{name}", 1)[0][0] }
      db.query("select ? as c", 1)
      assert_equal %w[b], released
      %w[a c d].each { |name| db.query("select ? as #{name}", 1) }
      assert_equal %w[b a], released
      db.query("create temporary table forgets (a int)")
      assert_equal %w[b a c d], released.sort_by { |name| %w[b a c d].index(name) }
      assert_equal [[1]], db.query("select ? as d", 1).rows
    end
  end

  # The first execution defines the columns of a prepare again, and never those that a result already has.
  def test_a_result_keeps_its_columns_when_its_statement_gets_others
    with_connection(statement_cache: :always) do |db|
      results = [1, "text", 2.5, nil, 3].map { |value| db.query("select ? as a, 7 as b", value) }
      assert_equal [1, "text", 2.5, nil, 3], results.map { |result| result[0][0] }
      assert_equal [7], results.map { |result| result[0][1] }.uniq
      assert_equal 4, results.map { |result| result.columns[0].type }.uniq.size
      assert_equal [%w[a b]], results.map(&:fields).uniq
    end
  end

  def test_values_of_a_result_that_are_nil
    with_connection do |db|
      db.query("create temporary table numbered (id int auto_increment primary key, a tinyint)")
      result = db.query("insert into numbered (a) values (?)", 1)
      assert_equal [1, 1, 0, nil, false],
        [result.last_insert_id, result.affected_rows, result.warnings, result.following, result.rows?]
      result = db.query("select 1/?", 0)
      assert_equal [nil, 0, 1, nil, true],
        [result.last_insert_id, result.affected_rows, result.warnings, result.following, result.rows?]
    end
  end

  # ---- the server's limit

  def test_at_the_limit_statements_without_arguments_still_work
    limit(0)
    with_connection do |db|
      assert_equal 7, db.query_value("select 7")
      error = assert_raises(Heddle::DB::StatementLimit) { db.query("select ?", 7) }
      assert_includes error.message, "max_prepared_stmt_count"
      assert_raises(Heddle::DB::ServerError) { db.prepare("select 7") }
      limit(64)
      assert_equal 7, db.query_value("select ?", 7)
    end
  end

  def test_at_the_limit_the_cache_closes_statements
    with_connection(statement_cache: :always) do |db|
      20.times { |n| db.query("select #{n} + ?", n) }
      assert_equal 20, db.cached_statements
      limit(20)
      assert_equal 108, db.query_value("select 101 + ?", 7)
      assert_equal 107, db.query_value("select 100 + ?", 7)
      assert_equal 2, db.cached_statements
    end
  end

  # When MariaDB refuses a prepare for the limit, it takes the execution of "the last statement" that comes with it
  # for one of the previous statement: it would run that one again.
  def test_at_the_limit_no_other_statement_is_run
    %i[always never].each do |mode|
      with_connection(statement_cache: mode) do |db|
        db.query("create temporary table t (name varchar(20))")
        db.query("insert into t values (?)", "once")
        others = Array.new(3) { |n| @admin.prepare("select #{n}") }
        limit(0)
        assert_raises(Heddle::DB::StatementLimit) { db.query("insert into t values (upper(?))", "never") }
        statement = others.first
        assert_equal 1, statement.query.size
        limit(64)
        assert_equal ["once"], db.query_column("select name from t"), mode
        others.each(&:close)
      end
    end
  end

  def test_a_prepare_that_fails_runs_nothing
    with_connection(statement_cache: :always) do |db|
      db.query("create temporary table t (name varchar(20))")
      2.times { db.query("insert into t values (?)", "once") }
      assert_raises(Heddle::DB::ServerError) { db.query("insert into nowhere_at_all values (?)", "never") }
      assert_equal 2, db.query_value("select count(*) from t")
    end
  end

  # ---- errors with the numbers of refused prepares

  # What a procedure does before it fails is done.
  BODIES = {
    1235 => "prepare s from 'select 1 from dual where 1 in (select 1 limit 1)'",
    1295 => "signal sqlstate 'HY000' set mysql_errno = 1295, message_text = 'not prepared'",
    1243 => "execute never_prepared",
    1461 => "signal sqlstate '42000' set mysql_errno = 1461, message_text = 'full'",
    1615 => "signal sqlstate 'HY000' set mysql_errno = 1615, message_text = 'outdated'"
  }.freeze

  WAYS = {
    query: ->(db, sql) { db.query(sql) }, exec: ->(db, sql) { db.exec(sql) },
    statement: ->(db, sql) { db.prepare(sql).query }, pipeline: ->(db, sql) { db.pipeline { |p| p.query(sql) }.value },
    rows: ->(db, sql) { db.each_row(sql).to_a },
    virtual: ->(db, sql) { db.query(Heddle::DB.virtual_statement(mysql: sql)) },
    transaction: ->(db, sql) { db.transaction { db.query(sql) } }
  }.freeze

  def test_a_statement_that_has_begun_is_not_sent_again
    @admin.exec("create or replace table done (n int) engine=myisam") # in which nothing is undone
    bodies = BODIES.flat_map do |number, statement|
      @admin.exec("create or replace procedure fail_#{number}() begin insert into done values (1); #{statement}; end")
      @admin.exec("create or replace function fail_#{number}() returns int begin insert into done values (1); " \
        "signal sqlstate 'HY000' set mysql_errno = #{number}, message_text = 'so'; return 1; end")
      [[number, "call fail_#{number}()"], [number, "select fail_#{number}()"],
        [number, "begin not atomic insert into done values (1); #{statement}; end"]]
    end
    [->(&block) { block.call }, ->(&block) { Heddle.run(&block) }].product(%i[always never]).each do |host, mode|
      host.call do
        with_connection(statement_cache: mode) do |db|
          WAYS.to_a.product(bodies).each do |(name, way), (number, sql)|
            @admin.exec("truncate done")
            error = assert_raises(Heddle::DB::ServerError) { way.call(db, sql) }
            assert_equal [number, 1], [error.code, @admin.query_value("select count(*) from done")], "#{name}: #{sql}"
          end
        end
      end
    end
  ensure
    BODIES.each_key do |number|
      @admin.exec("drop procedure if exists fail_#{number}")
      @admin.exec("drop function if exists fail_#{number}")
    end
    @admin.exec("drop table if exists done")
  end

  # The statement is prepared anew at its next execution.
  def test_a_statement_that_the_server_calls_outdated
    @admin.exec("create or replace function outdated(n int) returns int begin if n = 0 then " \
      "signal sqlstate 'HY000' set mysql_errno = 1615; end if; return n; end")
    with_connection do |db|
      before = on_server
      statement = db.prepare("select outdated(?)")
      3.times do |n|
        assert_equal 1615, assert_raises(Heddle::DB::ServerError) { statement.query(0) }.code
        assert_equal n + 1, statement.query(n + 1)[0][0]
      end
      db.flush_closes
      wait_until { on_server == before + 1 }
    end
  ensure
    @admin.exec("drop function if exists outdated")
  end

  # MariaDB answers the execution that was sent with a refused statement, too.
  def test_diagnostics_are_those_of_the_refused_statement
    with_connection do |db|
      [-> { db.query("selekt ?", 1) }, -> { db.transaction { db.query("selekt ?", 1) } },
        -> { db.each_row("selekt ?", 1) { flunk } }].each do |run|
        assert_raises(Heddle::DB::ServerError, &run)
        assert_equal [1064], db.query("show errors").map { |row| row[1] }
      end
      db.transaction do
        assert_raises(Heddle::DB::ServerError) { db.query("selekt ?", 1) }
        assert_equal [1064], db.query("show errors").map { |row| row[1] }
      end
      assert_raises(Heddle::DB::ServerError) { db.query("selekt ?", 1) }
      db.query("get diagnostics condition 1 @number = mysql_errno")
      assert_equal 1064, db.query_value("select @number")
      assert_equal 1, db.query("select 1/?", 0).warnings
      assert_equal [1365], db.query("show warnings").map { |row| row[1] }
    end
  end

  # ---- rows that a write returns

  def test_returned_rows_count_as_changed_ones
    with_connection do |db|
      db.exec("create temporary table returned (id int auto_increment primary key, n int)")
      insert = "insert into returned (n) values (?), (?) returning id"
      assert_equal 2, db.exec(insert, 1, 2)
      assert_equal 2, db.prepare(insert).exec(3, 4)
      assert_equal 2, db.transaction { 2.times.map { db.exec(insert, 5, 6) }.last }
      assert_equal 2, db.pipeline { |p| p.query(insert, 7, 8) }.value.affected_rows
      assert_equal 1, db.exec("replace into returned values (1, 9) returning n")
      assert_equal 3, db.exec("delete from returned where id <= ? returning n", 3)
      assert_equal 0, db.exec("delete from returned where id <= ? returning n", 3)
      assert_equal 0, db.exec("select * from returned")
    end
  end

  # ---- outdated statements

  def test_a_statement_that_the_server_has_forgotten
    with_connection(statement_cache: :always) do |db|
      assert_equal 2, db.query_value("select ? + 1", 1)
      statement = db.prepare("select ? + 2")
      # COM_RESET_CONNECTION: the server forgets them all.
      protocol(db).send_command(0x1f, "")
      assert_instance_of Heddle::DB::Result, protocol(db).receive_text
      assert_equal 3, db.query_value("select ? + 1", 2)
      assert_equal 4, statement.query(2).rows[0][0]
      db.transaction do
        assert_equal 4, db.query_value("select ? + 1", 3)
        protocol(db).send_command(0x1f, "")
        protocol(db).receive_text
      end
    rescue Heddle::DB::TransactionError
      # The reset has ended it, which is noticed.
      assert_equal 5, db.query_value("select ? + 1", 4)
    end
  end

  def test_tables_that_change_under_a_kept_statement
    with_connection(statement_cache: :always) do |db|
      db.exec("create or replace table changing (a int)")
      db.exec("insert into changing values (1)")
      2.times { assert_equal [[1]], db.query("select * from changing where a = ?", 1).rows }
      @admin.exec("alter table changing add b varchar(10) default 'x', modify a bigint")
      result = db.query("select * from changing where a = ?", 1)
      assert_equal [[[1, "x"]], %w[a b]], [result.rows, result.fields]
      assert_equal [[1, "x"]], db.query("select * from changing where a = ?", 1).rows
    ensure
      @admin.exec("drop table if exists changing")
    end
  end

  def test_statements_that_cannot_be_prepared
    with_connection do |db|
      assert_operator db.query("show warnings").size, :>=, 0
      assert_operator db.query("explain select 1").size, :>=, 1
      assert_predicate db.query("help 'select'"), :rows?
      db.each_batch("show variables like 'port'", [], fetch: 1) do |rows, columns|
        assert_equal [[["port", @server.port.to_s]], %w[Variable_name Value]], [rows, columns.names]
        break
      end
      assert_equal 0, db.exec("lock tables mysql.user read")
      assert_equal 0, db.exec("unlock tables")
    end
  end

  def test_a_statement_whose_executions_have_different_types
    with_connection(statement_cache: :always) do |db|
      values = [1, 1.5, "x", nil, 2, BigDecimal("1.25"), Date.new(2024, 1, 1), "y".b, 3]
      3.times do
        values.each do |value|
          value.nil? ? assert_nil(db.query_value("select ?", value)) : assert_equal(value,
            db.query_value("select ?", value))
        end
      end
      assert_equal 1, db.cached_statements
    end
  end

  # With the GC at any moment, in a process with few objects, of which a collection finds the end soon.
  def test_under_gc_stress
    assert_equal "1", assert_child(<<~'RUBY', env: {"SERVER" => @server.url}, gems: true, timeout: 50)
      db = Heddle::DB.connect(ENV.fetch("SERVER"), timeout: 40, statement_cache: :always)
      refused = lambda do
        db.query("select nowhere")
      rescue Heddle::DB::ServerError
        true
      end
      run = lambda do
        db.query("select ?, 'text', 1.5, cast(now() as date), cast('1:2:3' as time), x'ff', ?", "\u00e9",
          BigDecimal("1.5"))
        db.prepare("select 1").query
        db.pipeline { |p| p.query("select ?", 1) }
        refused.call == true or raise "an answer"
      end
      run.call
      GC.stress = true
      2.times { run.call }
      GC.stress = false
      print db.query_value("select 1")
    RUBY
  end
end
