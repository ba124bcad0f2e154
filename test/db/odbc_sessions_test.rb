# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/postgresql_server"
require "support/odbc_contract"

# What one borrower of a pool's connection leaves behind must not exist for the next, by ODBC either.
class ODBCSessionsTest < Minitest::Test
  include ODBCContract
  include MariaDBHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  ADVISORY = "select count(*) from pg_locks where locktype = 'advisory' and objid = 77"

  # What a borrower runs, and what the next one asks.
  POSTGRESQL = {
    setting: ["set work_mem = '7MB'", "select current_setting('work_mem')"],
    setting_of_a_select: ["select set_config('work_mem', '7MB', false)", "select current_setting('work_mem')"],
    setting_of_a_quoted_name: [%(select pg_catalog."set_config" ('work_mem', '7MB', false)),
      "select current_setting('work_mem')"],
    setting_of_a_definition: ["create table left_table as select set_config('work_mem', '7MB', false)",
      "select current_setting('work_mem')", "drop table if exists left_table"],
    search_path: ["select set_config('search_path', 'nowhere', false)", "select current_setting('search_path')"],
    role: ["select set_config('role', 'pg_monitor', false)", "select current_user::text"],
    form_of_dates: ["set datestyle to 'SQL, DMY'", "select current_setting('datestyle')"],
    lock: ["select pg_advisory_lock(77)", ADVISORY],
    lock_of_an_insert: ["insert into left_rows select 1 from pg_advisory_lock(77)", ADVISORY],
    temporary_table: ["select 1 as a into temporary left_behind",
      "select count(*) from pg_class where relname = 'left_behind'"],
    transaction: ["begin", "select now() = statement_timestamp()"],
    transaction_that_reads: ["start transaction read only", "select current_setting('transaction_read_only')"],
    listening: ["listen left_behind", "select count(*) from pg_listening_channels()"],
    statement: ["prepare left_behind as select 1", "select count(*) from pg_prepared_statements where from_sql"]
  }.freeze

  MARIADB = {
    variable: ["set @left = 1", "select @left"],
    variable_of_a_select: ["select @left := 1", "select @left"],
    variable_of_an_analysis: ["analyze select @left := 1", "select @left"],
    setting: ["set sql_mode = ''", "select @@sql_mode"],
    autocommit: ["set autocommit = 0", "select @@autocommit"],
    transaction: ["begin", "select @@in_transaction"],
    transaction_that_reads: ["start transaction read only", "select @@in_transaction"],
    lock: ["select get_lock('left', 0)", "select is_free_lock('left')"],
    lock_in_a_condition: ["select if(1, `GET_LOCK`('left', 0), 0)", "select is_free_lock('left')"],
    lock_of_a_do: ["do get_lock('left', 0)", "select is_free_lock('left')"],
    locked_tables: ["lock tables left_rows read", "select count(*) from other_rows"],
    database: ["use mysql", "select database()"]
  }.freeze

  SQLITE = {
    setting: ["pragma cache_size = 1234", "pragma cache_size"],
    temporary_table: ["create table temp.left_behind (a int)", "select count(*) from sqlite_temp_master"]
  }.freeze

  {mariadb: MARIADB, postgresql: POSTGRESQL, sqlite: SQLITE}.each do |database, changes|
    changes.each do |name, (change, check, after)|
      define_method(:"test_#{database}_#{name}") do
        with_pool(database) do |pool|
          before = [pool.query_value(check)]
          2.times do
            pool.query(change)
            # The server frees the locks of a connection that was closed when it gets to know of that.
            wait_until(what: "the session as it was before") { before == [pool.query_value(check)] }
            pool.query(after) if after
          end
        end
      end
    end
  end

  def test_a_statement_that_sqlite_runs_when_it_prepares_it
    with_pool(:sqlite) do |pool|
      before = pool.query_value("pragma cache_size")
      ["pragma cache_size = 1234", "explain pragma cache_size = 1234"].each do |sql|
        pool.with { |db| db.prepare(sql) }
        assert_equal before, pool.query_value("pragma cache_size"), sql
      end
    end
  end

  # A write of the next borrower was acknowledged, and lost.
  def test_a_transaction_of_a_text_takes_no_writes
    {mariadb: ["begin", "set autocommit = 0"], postgresql: ["begin"], sqlite: ["begin", "savepoint x"]}
      .each do |database, texts|
        with_pool(database) do |pool|
          texts.each do |text|
            pool.query("delete from left_rows")
            pool.query(text)
            pool.exec("insert into left_rows values (?)", 1)
            second = Heddle::DB.connect(send(:"#{database}_source"), timeout: 10)
            assert_equal [1], second.query_column("select n from left_rows"), "#{database}: #{text}"
            second.close
          end
        end
      end
  end

  # The connection that is dropped ends with its transaction and its locks.
  def test_a_dropped_connection_ends_its_transaction
    {mariadb: "lock tables left_rows write", postgresql: "begin; lock table left_rows", sqlite: "begin exclusive"}
      .each do |database, text|
        with_pool(database) do |pool|
          pool.query(text)
          second = Heddle::DB.connect(send(:"#{database}_source"), timeout: 10)
          assert_equal [], second.query_column("select n from left_rows"), database
          second.close
          assert_empty pool.query("select n from left_rows")
        end
      end
  end

  # Statements of rows cost no reset, and those that stay prepared run after one.
  def test_a_connection_that_nobody_changed_stays
    {mariadb: "select connection_id()", postgresql: "select pg_backend_pid()"}.each do |database, own|
      with_pool(database, statement_cache: :always) do |pool|
        id = pool.query_value(own)
        statement = pool.prepare("select n from left_rows where n = ?")
        3.times do |n|
          pool.exec("insert into left_rows (n) values (?)", n)
          assert_equal [[n]], statement.query(n).rows
          assert_equal [n], pool.query_column("select n from left_rows where n = ?", n)
          pool.transaction(isolation: :repeatable_read, read_only: true) { pool.query("select 1") }
        end
        assert_equal id, pool.query_value(own)
      end
    end
  end

  # What the driver itself has set, and ConnSettings, are no changes.
  def test_postgresql_keeps_the_settings_of_the_connect
    with_pool(:postgresql) do |pool|
      check = "select current_setting('datestyle'), current_setting('extra_float_digits'), current_setting('work_mem')"
      assert_equal ["ISO, MDY", "2", "6MB"], pool.query_row(check)
      id = pool.query_value("select pg_backend_pid()")
      pool.query("select set_config('datestyle', 'SQL, DMY', false), set_config('work_mem', '7MB', false)")
      assert_equal ["ISO, MDY", "2", "6MB"], pool.query_row(check)
      assert_equal id, pool.query_value("select pg_backend_pid()")
    end
  end

  private

  def with_pool(database, **options)
    pool = Heddle::DB::Pool.new(send(:"#{database}_source"), size: 1, timeout: 10, **options)
    %w[left_rows other_rows].each do |table|
      pool.query("drop table if exists #{table}")
      pool.query("create table #{table} (n int)")
    end
    yield pool
  ensure
    pool&.close
  end

  def postgresql_source = super(ConnSettings: "set work_mem to '6MB'")

  def sqlite_source = source("sessions_sqlite", "SQLite", Database: "#{ODBCSources.folder}/sessions.db", Timeout: 5000)
end
