# frozen_string_literal: true

# What the suites of test/shared/db need to know of PostgreSQL, with every driver.
module PostgreSQLDialect
  def series(count) = "select n::int from generate_series(1, #{count}) as n"

  def sleep_sql(seconds) = "select pg_sleep(#{seconds})"

  def sleepers(db) = db.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'")

  def a_comment_without_a_space = ["select 5--?", 5]

  # The server closes its prepared statements.
  def forgetting_sql = "deallocate all"

  # The server looks for a deadlock in the session that has waited for deadlock_timeout, and ends that session's
  # statement.
  def survive_deadlocks(db) = db.query("set deadlock_timeout = '15s'")

  def fall_to_deadlocks(db) = db.query("set deadlock_timeout = '50ms'")

  # The server looks once: the other session must wait by then.
  def waited_for?(db)
    db.query_value(<<~SQL).positive?
      select count(*) from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))
    SQL
  end

  def database_type = :postgresql

  # A variable of the session: how to set it, how to read it, what that returns, what the server has without it.
  def session_setting = ["set work_mem = '7MB'", "select current_setting('work_mem')", "7MB", "4MB"]

  def kill_sql(id) = "select pg_terminate_backend(#{id})"

  def lock_timeout_sql = "set lock_timeout = '1s'"

  def limit_sql(seconds) = "set statement_timeout = '#{seconds}s'"

  def committing
    ["commit", "rollback", "begin", "start transaction", "end", "abort", "prepare transaction 'x'", "/* x */ COMMIT"]
  end
end
