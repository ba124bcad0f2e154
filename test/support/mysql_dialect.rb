# frozen_string_literal: true

require "support/mariadb_dialect"

# What is different in MySQL itself.
module MySQLDialect
  include MariaDBDialect

  def series(count)
    "with recursive counted (seq) as (select 1 union all select seq + 1 from counted where seq < #{count}) " \
      "select /*+ set_var(cte_max_recursion_depth=1000000) */ seq from counted"
  end

  # Without a strict mode: the table has the statements of all sessions, as text, and another's may hold any bytes.
  def sleepers(db)
    db.query_value("select /*+ set_var(sql_mode='') */ count(*) from information_schema.processlist " \
      "where state = 'User sleep'")
  end

  def database_type = :mysql

  # It describes a ? as text, whatever is bound.
  def same_bytes_sql = "select cast(? as binary)"

  def limit_sql(seconds) = "set max_execution_time = #{(seconds * 1000).round}"

  # Its sleep() returns at the limit, without an error.
  def endless_sql
    "select count(*) from information_schema.collations a, information_schema.collations b, " \
      "information_schema.collations c, information_schema.collations d"
  end
end
