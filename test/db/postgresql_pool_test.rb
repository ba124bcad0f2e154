# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/stream_helpers"
require "support/postgresql_server"

# What one user of a pool's connection leaves, and the next one must not find, on a real PostgreSQL.
module PostgreSQLPoolSuite
  include StreamHelpers
  include PostgreSQLHelpers

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
