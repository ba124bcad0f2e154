# frozen_string_literal: true

require "test_helper"
require "heddle/db/mysql" # beside the own driver
require "support/mariadb_dialect"
require "support/mariadb_server"
require "support/odbc_contract"

# MariaDB by its own ODBC driver.
module ODBCMariaDB
  include MariaDBHelpers
  include MariaDBDialect

  def setup
    @server = mariadb
  end

  def address = mariadb_source

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
end

ODBCContract.define("MariaDB", ODBCMariaDB, {})
