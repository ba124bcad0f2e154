# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/odbc_contract"

# MariaDB by its own ODBC driver.
module ODBCMariaDB
  include MariaDBHelpers

  def setup
    @server = mariadb
  end

  def address
    source("mariadb", "MariaDB", SERVER: @server.host, PORT: @server.port,
      DATABASE: @server.database, UID: @server.username, PWD: @server.password)
  end

  def series(count) = "select seq from seq_1_to_#{count}"

  def sleep_sql(seconds) = "select sleep(#{seconds})"

  def sleepers(db)
    db.query_value("select count(*) from information_schema.processlist where state = 'User sleep'")
  end

  # The driver's own SQLCancel frees what SQLExecute is using, if it comes between two locks of that call.
  def test_each_cancel_is_a_kill_of_the_query
    db = connect
    kills = -> { db.query_row("show global status like 'Com_kill'").last.to_i }
    before = kills.call
    3.times { assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.05) { db.query(sleep_sql(20)) } } }
    assert_equal before + 3, kills.call
    assert_equal 1, db.query_value("select 1")
  ensure
    db&.close
  end

  # Without the cast the driver takes it for a text.
  def same_bytes_sql = "select cast(? as binary)"

  # One without parameters is not sent before it is run.
  def refused_at_prepare = "this is no sql ?"

  def a_comment_without_a_space = ["select 5--?", 1, 6] # MySQL wants a space behind --

  def forgetting_sql = "set @a = 1"

  def database_type = :mariadb

  def session_setting = ["set sql_safe_updates = 1", "select @@sql_safe_updates", 1, 0]

  def kill_sql(id) = "kill #{id}"

  def lock_timeout_sql = "set innodb_lock_wait_timeout = 1"

  def limit_sql(seconds) = "set max_statement_time = #{seconds}"

  def committing
    ["create table x (a int)", "/* x */ DROP TABLE x", "commit", "rollback", "begin", "start transaction",
      "alter table x add b int",
      "truncate table x", "set autocommit = 1", "lock tables x read", "/*!50000 create table x (a int) */"]
  end
end

ODBCContract.define("MariaDB", ODBCMariaDB, {})
