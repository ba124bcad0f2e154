# frozen_string_literal: true

require "test_helper"
require "support/postgresql_dialect"
require "support/postgresql_server"
require "support/odbc_contract"

# PostgreSQL by its own ODBC driver.
module ODBCPostgreSQL
  include PostgreSQLHelpers
  include PostgreSQLDialect

  def address = postgresql_source

  # Without the type it would be a text with the bytes in hexadecimal.
  def same_bytes_sql = "select ?::bytea"

  def unbindable = [*super, "a\0b"]

  def committing = [*super, "select 1; commit"]
end

ODBCContract.define("PostgreSQL", ODBCPostgreSQL, {
  test_idle_connections_that_the_server_ended_are_replaced: "the driver does not look whether an idle one has died"
})
