# frozen_string_literal: true

# What the suites of test/shared/db need to know of MariaDB, with every driver.
module MariaDBDialect
  def series(count) = "select seq from seq_1_to_#{count}"

  def sleep_sql(seconds) = "select sleep(#{seconds})"

  def datetime_type = "datetime"

  def sleepers(db)
    db.query_value("select count(*) from information_schema.processlist where state = 'User sleep'")
  end

  def a_comment_without_a_space = ["select 5--?", 1, 6] # MySQL wants a space behind --

  def forgetting_sql = "set @a = 1"

  def database_type = :mariadb

  # A variable of the session: how to set it, how to read it, what that returns, what the server has without it.
  def session_setting = ["set sql_safe_updates = 1", "select @@sql_safe_updates", 1, 0]

  def kill_sql(id) = "kill #{id}"

  def lock_timeout_sql = "set innodb_lock_wait_timeout = 1"

  def limit_sql(seconds) = "set max_statement_time = #{seconds}"

  def committing
    ["create table x (a int)", "/* x */ DROP TABLE x", "commit", "rollback", "begin", "start transaction",
      "alter table x add b int", "truncate table x", "set autocommit = 1", "lock tables x read",
      "/*!50000 create table x (a int) */"]
  end
end
