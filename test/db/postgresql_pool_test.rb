# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/interrupt_at_moment"
require "support/stream_helpers"
require "support/postgresql_server"

# What one user of a pool's connection leaves, and the next one must not find, on a real PostgreSQL.
module PostgreSQLPoolSuite
  include StreamHelpers
  include PostgreSQLHelpers
  include InterruptAtMoment

  def with_pool(**options)
    server = postgresql
    in_host do
      pool = Heddle::DB::Pool.new(server.url, size: 1, timeout: 20, **options)
      yield pool
    ensure
      pool&.close
    end
  end

  # Another task or thread than the one before.
  def next_user(&block)
    Fiber.scheduler ? Heddle.spawn(&block).value : Thread.new(&block).value
  end

  CURSORS = "select count(*) from pg_cursors where name <> ''"

  def test_a_cursor_left_open_is_closed_at_checkin
    with_pool do |pool|
      rows = nil
      pool.with do |db|
        rows = db.each_row("select n from generate_series(1, 50) as n", fetch: 5)
        assert_equal [1], rows.next
        assert_equal 1, db.query_value(CURSORS)
      end
      pool.with do |db|
        assert_equal 0, db.query_value(CURSORS)
        refute_predicate db.driver, :session_changed?
        db.each_row("select n from generate_series(1, 50) as n", fetch: 5).first(7)
        refute_predicate db.driver, :session_changed? # a cursor that was closed leaves nothing
      end
    end
  end

  # The server has the cursor as soon as it has answered.
  def test_a_cursor_whose_opener_is_interrupted_is_closed_at_checkin
    with_pool do |pool|
      (1..).each do |moment|
        reached = raised_at([moment]) do |armed|
          pool.with { |db| [armed.call, db.each_row("select n from generate_series(1, 3) as n", fetch: 2).next] }
        end
        assert_equal 0, pool.query_value(CURSORS), reached.inspect
        break if reached.empty?
      end
    end
  end

  def test_selects_that_change_the_session
    lock = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    with_pool do |pool|
      pool.query("select 1 as a into temporary table left_behind")
      pool.query("select pg_advisory_lock(?)", 77)
      pool.query("select set_config('lock_timeout', '77ms', false)")
      assert_equal 0, pool.query_value("select count(*) from pg_class where relname = 'left_behind'")
      assert_equal 0, pool.query_value(lock)
      assert_equal "0", pool.query_value("show lock_timeout")
      pool.with do |db|
        db.transaction { db.query("select set_config('lock_timeout', ?, true)", "77ms") }
        refute_predicate db.driver, :session_changed? # the setting ended with its transaction
      end
    end
  end

  SETTING = "show lock_timeout"

  # Functions that leave a setting: two that the server has, and one of the program's own.
  CALLS = ["select \"set_config\"('lock_timeout', '77ms', false)",
    "select pg_catalog.\"set_config\"('lock_timeout', '77ms', false)",
    "select U&\"set\\005fconfig\"('lock_timeout', '77ms', false)", "select leave_setting()",
    "select \"leave_setting\" ( )",
    "select set_config('heddle.a', set_config('lock_timeout', '77ms', false), true)",
    "explain analyze select leave_setting()", "select query_to_xml('select leave_setting()', true, false, '')"].freeze

  WAYS = {query: ->(db, sql) { db.query(sql) }, prepared: ->(db, sql) { db.prepare(sql).query },
          several: ->(db, sql) { db.query("select 1; #{sql}") }, cursor: ->(db, sql) { db.each_row(sql).to_a },
          pipeline: ->(db, sql) { db.pipeline { |p| p.query(sql) } },
          atomic: ->(db, sql) { db.pipeline(atomic: true) { |p| p.query(sql) } },
          transaction: ->(db, sql) { db.transaction { 2.times { db.query(sql) } } },
          committed: ->(db, sql) { db.query_text("begin; #{sql}; commit") }}.freeze

  def make_functions(pool)
    pool.query(<<~SQL)
      create or replace function leave_setting() returns int language plpgsql as
        $$ begin perform set_config('lock_timeout', '77ms', false); return 1; end $$;
      create or replace function one() returns int stable language sql as 'select 1'
    SQL
  end

  def test_functions_that_change_the_session
    [:always, :transaction].each do |cache|
      with_pool(statement_cache: cache) do |pool|
        make_functions(pool)
        CALLS.each do |sql|
          WAYS.each do |name, way|
            2.times do
              pool.with { |db| way.call(db, sql) }
              assert_equal "0", pool.query_value(SETTING), "#{name}: #{sql}"
            end
          end
        end
        pool.with { |db| db.copy_out("copy (select leave_setting()) to stdout") { nil } }
        assert_equal "0", pool.query_value(SETTING)
        pool.with { |db| db.query_text("begin; set lock_timeout = 77; commit") }
        assert_equal "0", pool.query_value(SETTING)
      end
    end
  end

  def test_a_statement_that_a_program_keeps_beyond_the_reset
    with_pool do |pool|
      make_functions(pool)
      statement = pool.prepare("select leave_setting()")
      3.times do
        statement.query
        assert_equal "0", pool.query_value(SETTING)
      end
    end
  end

  # The server is asked once for each name.
  def test_functions_that_leave_the_session_as_it_is
    with_pool do |pool|
      make_functions(pool)
      asked = []
      pool.with do |db|
        protocol = db.driver.instance_variable_get(:@protocol)
        protocol.define_singleton_method(:run_own) do |sql, arguments|
          super(sql, arguments).tap { asked << arguments[0] }
        end
      end
      mine = ->(db) { db.query_value("select pg_backend_pid()") }
      first = pool.with(&mine)
      3.times do
        pool.with do |db|
          db.query("select one(), \"upper\"('x'), random()")
          db.query("insert into pg_temp.left_behind (a) values (1)")
        rescue Heddle::DB::ServerError
          nil
        end
        pool.with { |db| refute_predicate db.driver, :session_changed? }
      end
      assert_equal [%w[one upper]], asked
      assert_equal first, pool.with(&mine)
    end
  end

  def test_a_trigger_that_changes_the_session_is_not_noticed
    with_pool do |pool|
      pool.query(<<~SQL)
        drop table if exists with_trigger; create table with_trigger (a int);
        create or replace function leave_by_trigger() returns trigger language plpgsql as
          $$ begin perform set_config('lock_timeout', '77ms', false); return new; end $$;
        create trigger leaves before insert on with_trigger for each row execute function leave_by_trigger()
      SQL
      pool.exec("insert into with_trigger values (1)")
      assert_equal "77ms", pool.query_value(SETTING)
    end
  end

  def test_a_commit_that_the_server_refused
    with_pool do |pool|
      pool.with do |db|
        db.exec("create temporary table once (id int unique deferrable initially deferred)")
        db.start_transaction
        db.exec("insert into once values (1), (1)")
        assert_raises(Heddle::DB::UniqueViolation) { db.commit }
        assert_predicate db, :needs_rollback?
      end
      next_user do
        pool.with do |db|
          assert_equal [0, false], [db.transaction_depth, db.needs_rollback?]
          assert_equal 1, db.query_value("select 1")
        end
      end
    end
  end

  # A reset of the session restores the database's own IntervalStyle, which the client cannot read.
  def test_the_interval_style_outlives_a_reset
    intervals = "select 1; select (interval '1 day 2 hours')::text"
    with_pool(options: "-c IntervalStyle=iso_8601") do |pool|
      2.times do
        pool.with do |db|
          assert_equal [["1 day 02:00:00"]], db.query(intervals).following.rows
          db.exec("set lock_timeout = 5")
        end
      end
    end
  end

  def test_handlers_end_with_the_checkout
    notice = "do $$ begin raise notice 'a secret'; end $$"
    with_pool do |pool|
      seen = []
      pool.with do |db|
        db.on_notice { |message| seen << message }
        db.on_query { |event| seen << event }
        db.query(notice)
        assert_equal 2, seen.size
      end
      pool.query(notice)
      assert_equal 2, seen.size
    end
  end
end

BothModes.define("PostgreSQLPool", PostgreSQLPoolSuite)
