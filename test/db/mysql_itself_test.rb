# frozen_string_literal: true

require "test_helper"
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

  # ---- sessions

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
