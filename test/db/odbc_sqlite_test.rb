# frozen_string_literal: true

require "test_helper"
require "support/odbc_contract"

# SQLite by its ODBC driver.
module ODBCSQLite
  def address
    @address ||= source("sqlite", "SQLite", Database: "#{ODBCSources.folder}/contract.db", Timeout: 10_000,
      FKSupport: 1)
  end

  def series(count) = "with recursive c (n) as (select 1 union all select n + 1 from c limit #{count}) select n from c"

  # SQLite computes instead of sleeping.
  ROWS_A_SECOND = 3_000_000

  def sleep_sql(seconds)
    "with recursive c (n) as (select 1 union all select n + 1 from c limit #{(seconds * ROWS_A_SECOND).to_i}) " \
      "select max(n) from c"
  end

  def connect(**options) = super.tap { |db| (@connections ||= []) << db }

  # Nobody but this process can tell what runs here.
  def wait_until_something_sleeps
    wait_until(what: "the query") { @connections.any? { |db| !db.closed? && !db.at_rest? } }
  end

  def wait_until_nothing_sleeps
    assert(@connections.to_a.all? { |db| db.closed? || db.at_rest? })
  end

  def state_of_a_missing_table = /\AHY000/ # it passes no states on

  def lock_timeout_sql = "pragma busy_timeout = 1000"

  # The driver looks only at queries before they are run.
  def refused_at_prepare = "select nothing from nowhere_at_all"

  def a_comment_without_a_space = ["select 5--?", 5]

  def forgetting_sql = "pragma cache_size = 1000"

  def database_type = :sqlite

  def committing = ["commit", "rollback", "begin", "end", "/* x */ COMMIT", "select 1; commit"]
end

NO_SERVER = "SQLite has no server, whose sessions could be told apart, ended or limited"
ONE_WRITER = "SQLite has one writer at a time: nobody waits in a circle"
ODBCContract.define("SQLite", ODBCSQLite, {
  test_a_victim_of_a_deadlock_runs_nothing_more: ONE_WRITER,
  test_deadlocks_are_retried: ONE_WRITER,
  test_isolation_and_read_only: "SQLite is always serializable, and has no SET TRANSACTION",
  test_a_write_in_a_read_only_transaction: "SQLite has no SET TRANSACTION",
  test_a_statement_that_the_server_stops_at_its_time_limit: NO_SERVER,
  test_statements_on_each_new_connection: NO_SERVER,
  test_idle_connections_that_the_server_ended_are_replaced: NO_SERVER,
  test_a_lock_timeout: "the driver waits as long as its source's Timeout says",
  test_question_marks_in_strings_and_comments_are_not_parameters: "the driver takes one in a comment for a parameter",
  test_the_wrong_number_of_arguments: "the driver takes a question mark in a comment for a parameter",
  test_tables: "SQLite has no schemas",
  test_failed_connects_free_their_places: "SQLite makes a base that does not exist",
  test_fifty_borrowers_at_once: "SQLite computes instead of sleeping"
})
