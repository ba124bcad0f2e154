# frozen_string_literal: true

require "test_helper"
require "support/postgresql_server"
require "support/odbc_contract"

# PostgreSQL by its own ODBC driver.
module ODBCPostgreSQL
  include PostgreSQLHelpers

  # What the guide tells to set: a binary value is a bytea, the driver sets no savepoints of its own, which would undo
  # those of nested transactions, and a number stays a number.
  SETTINGS = {ByteaAsLongVarBinary: 1, BoolsAsChar: 0, Protocol: "7.4-0", UseServerSidePrepare: 0}.freeze

  def address
    server = postgresql
    source("postgresql", "PostgreSQL", Servername: server.host, Port: server.port, Database: server.database,
      Username: server.username, Password: server.password, **SETTINGS)
  end

  def series(count) = "select n::int from generate_series(1, #{count}) as n"

  def sleep_sql(seconds) = "select pg_sleep(#{seconds})"

  def sleepers(db) = db.query_value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'")

  # Without the type it would be a text with the bytes in hexadecimal.
  def same_bytes_sql = "select ?::bytea"

  def unbindable = [*super, "a\0b"]

  def a_comment_without_a_space = ["select 5--?", 5]

  def forgetting_sql = "deallocate all"

  # The session that waits for longer than its deadlock_timeout looks for a deadlock, and is given up.
  def survive_deadlocks(db) = db.query("set deadlock_timeout = '15s'")

  def fall_to_deadlocks(db) = db.query("set deadlock_timeout = '50ms'")

  # It looks once: whoever is to be found must wait by then.
  def waited_for?(db)
    db.query_value(<<~SQL).positive?
      select count(*) from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))
    SQL
  end

  def database_type = :postgresql

  def session_setting = ["set work_mem = '7MB'", "select current_setting('work_mem')", "7MB", "4MB"]

  def kill_sql(id) = "select pg_terminate_backend(#{id})"

  def lock_timeout_sql = "set lock_timeout = '1s'"

  def limit_sql(seconds) = "set statement_timeout = '#{seconds}s'"

  def committing
    ["commit", "rollback", "begin", "start transaction", "end", "abort", "prepare transaction 'x'", "/* x */ COMMIT",
      "select 1; commit"]
  end
end

ODBCContract.define("PostgreSQL", ODBCPostgreSQL, {
  test_idle_connections_that_the_server_ended_are_replaced: "the driver does not look whether an idle one has died"
})
