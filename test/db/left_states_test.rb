# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/mysql_server"
require "support/odbc_contract"
require "support/postgresql_server"
require "support/sqlite_helpers"
require "shared/db/left_states"

runs_on short: false

# What a session can hold, by database: none of it reaches a pool's next caller. See DatabaseLeftStates.
module LeftStatesTests
  # In the manner of {DatabaseLeftStates::State}.
  def self.states(table)
    table.map { |kind, (leaves, seen)| DatabaseLeftStates::State.new(kind, Array(leaves), seen) }.freeze
  end

  # Of one pool, whose connections are few.
  module OfServer
    include DatabaseLeftStates

    def pools = server_pools(2)
  end

  # PostgreSQL: "DISCARD ALL" of its manual names what a session has.
  module PostgreSQL
    STATES = LeftStatesTests.states(
      setting: [["set work_mem = '7MB'", "select set_config('work_mem', '7MB', false)",
        %(select pg_catalog."set_config" ('work_mem', '7MB', false)), "select leave_setting()",
        "do $$ begin perform set_config('work_mem', '7MB', false); end $$",
        "explain analyze select set_config('work_mem', '7MB', false)",
        "with a as (select set_config('work_mem', '7MB', false)) select * from a"], "current_setting('work_mem')"],
      search_path: [["set search_path to nowhere", "select set_config('search_path', 'nowhere', false)"],
        "current_setting('search_path')"],
      role: [["set role left_role", "select set_config('role', 'left_role', false)"], "current_user::text"],
      user: ["set session authorization left_role", "session_user::text"],
      dates: ["set datestyle to 'SQL, DMY'", "current_setting('datestyle')"],
      zone: ["set timezone to 'Asia/Tokyo'", "current_setting('timezone')"],
      encoding: ["set client_encoding to 'LATIN1'", "current_setting('client_encoding')"],
      name: ["set application_name to 'left'", "current_setting('application_name')"],
      limit: ["set statement_timeout to '1h'", "current_setting('statement_timeout')"],
      isolation: ["set session characteristics as transaction isolation level serializable",
        "current_setting('default_transaction_isolation')"],
      variable: [["set heddle.behind = '1'", "select set_config('heddle.behind', '1', false)"],
        "nullif(current_setting('heddle.behind', true), '')"],
      temporary_table: [["create temporary table left_behind (a int)", "select 1 as a into temporary left_behind",
        "create temporary table left_behind as select 1 as a"], "to_regclass('left_behind')::text"],
      advisory_lock: [["select pg_try_advisory_lock(77)", "insert into left_rows select 1 where " \
        "pg_try_advisory_lock(77)", "do $$ begin perform pg_try_advisory_lock(77); end $$", "select leave_lock()"],
        "(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())"],
      listening: ["listen left_behind", "(select count(*) from pg_listening_channels())"],
      statement: ["prepare left_behind as select 1",
        "(select count(*) from pg_prepared_statements where name = 'left_behind')"],
      cursor: ["declare left_behind cursor with hold for select 1",
        "(select count(*) from pg_cursors where name = 'left_behind')"],
      transaction: [["begin", "start transaction", "begin; insert into left_rows values (1)",
        "begin; select 1/0"], nil],
      reading: [["start transaction read only", "begin isolation level serializable read only"],
        "current_setting('transaction_read_only')"]
    )

    def states = STATES

    private

    def prepare_states(db)
      db.query("drop table if exists left_rows")
      db.query("create table left_rows (n int)")
      db.query("do $$ begin create role left_role; exception when duplicate_object then null; end $$")
      db.query("grant all on left_rows, written to left_role")
      db.query("create or replace function leave_setting() returns text language sql as " \
        "$$ select set_config('work_mem', '7MB', false) $$")
      db.query("create or replace function leave_lock() returns bool language sql as " \
        "$$ select pg_try_advisory_lock(77) $$")
    end
  end

  # MariaDB and MySQL.
  module OfBoth
    SHARED = {
      variable: [["set @left = 1", "select @left := 1", "select@left:=1", "select 1 into @left", "do @left := 1",
        "get diagnostics @left = number"], "@left"],
      setting: ["set sql_mode = ''", "@@sql_mode"],
      autocommit: ["set autocommit = 0", "@@autocommit"],
      lock: [["select get_lock('left', 0)", "do get_lock('left', 0)", "select if(1, `GET_LOCK`('left', 0), 0)",
        "set @locked = get_lock('left', 0)"], "coalesce(is_used_lock('left') = connection_id(), 0)"],
      database: ["use information_schema", "database()"],
      role: ["set role left_role", "current_role()"],
      # In front of a table of one row.
      temporary_table: [["create temporary table shadowed (a int)", "create temporary table shadowed select 1 as a " \
        "from left_rows where 1 = 0"], "(select count(*) from shadowed)"],
      zone: ["set time_zone = '+05:00'", "@@time_zone"],
      clock: ["set timestamp = 1", "now() < '2000-01-01'"],
      names: [["set names latin1", "set character_set_results = binary"],
        "concat(@@character_set_client, @@character_set_results, @@collation_connection)"],
      checks: ["set foreign_key_checks = 0", "@@foreign_key_checks"],
      last_number: [["select last_insert_id(77)", "do last_insert_id(77)"], nil],
      statement: ["prepare left_behind from 'select 1'", nil],
      locked_tables: [["lock tables left_rows read", "lock tables left_rows write"], "(select count(*) from shadowed)"],
      transaction: [["begin", "start transaction", "start transaction with consistent snapshot",
        "start transaction read only"], nil],
      distributed: ["xa start 'left'", nil],
      handler: ["handler left_rows open", nil]
    }.freeze

    private

    def prepare_states(db)
      %w[left_rows shadowed].each do |name|
        db.query("drop table if exists #{name}")
        db.query("create table #{name} (a int)")
      end
      db.query("insert into shadowed values (1)")
      db.query("create role if not exists left_role")
      db.query("grant all on *.* to left_role")
      db.query("grant left_role to heddle@'%', heddle@localhost")
    end
  end

  module MariaDB
    include OfBoth

    STATES = LeftStatesTests.states(**SHARED,
      isolation: ["set session transaction isolation level serializable", "@@tx_isolation"],
      limit: ["set max_statement_time = 1000", "@@max_statement_time"],
      open: [["begin", "start transaction read only", "begin not atomic start transaction; end"], "@@in_transaction"],
      compound: [["begin not atomic do get_lock('left', 0); end", "if get_lock('left', 0) then do 1; end if",
        "execute immediate 'set @left = 1'", "analyze select @left := 1", "select 1 /*!, @left := 1 */"], "@left"])

    def states = STATES
  end

  module MySQL
    include OfBoth

    STATES = LeftStatesTests.states(**SHARED,
      isolation: ["set session transaction isolation level serializable", "@@transaction_isolation"],
      limit: ["set max_execution_time = 100000", "@@max_execution_time"],
      tracking: ["set session_track_state_change = 0", "@@session_track_schema"],
      analysis: ["explain analyze select @left := 1", "@left"])

    def states = STATES
  end

  module SQLite
    STATES = LeftStatesTests.states(
      setting: ["pragma cache_size = 1234", "(select cache_size from pragma_cache_size)"],
      keys: ["pragma foreign_keys = off", "(select foreign_keys from pragma_foreign_keys)"],
      reading: ["pragma query_only = on", "(select query_only from pragma_query_only)"],
      letters: ["pragma case_sensitive_like = on", "'A' like 'a'"],
      temporary_table: [["create temporary table left_behind (a int)", "create table temp.left_behind (a int)",
        "create temporary view left_behind as select 1", "explain create temporary table left_behind (a int)"],
        "(select count(*) from sqlite_temp_master)"],
      attached: ["attach ':memory:' as left_base", "(select count(*) from pragma_database_list where name <> 'temp')"],
      transaction: [["begin", "begin immediate", "savepoint left_behind", "begin exclusive"], nil]
    )

    def states = STATES

    private

    def prepare_states(db)
      db.query("drop table if exists left_rows")
      db.query("create table left_rows (a int)")
    end
  end
end

class LeftStatesOfPostgreSQLTest < Minitest::Test
  include OwnPostgreSQLHelpers
  include LeftStatesTests::OfServer
  include LeftStatesTests::PostgreSQL

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = postgresql.url
end

class LeftStatesOfMariaDBTest < Minitest::Test
  include MariaDBHelpers
  include LeftStatesTests::OfServer
  include LeftStatesTests::MariaDB

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = mariadb.url
end

class LeftStatesOfMySQLTest < Minitest::Test
  include MySQLHelpers
  include LeftStatesTests::OfServer
  include LeftStatesTests::MySQL

  hard_deadline DatabaseInterrupts::SECONDS + 120

  def address = mysql.url
end

class LeftStatesOfSQLiteTest < Minitest::Test
  include SQLiteHelpers
  include DatabaseLeftStates
  include LeftStatesTests::SQLite

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = "sqlite://#{@path}"

  def pools = sqlite_pools(2)
end

class LeftStatesByODBCOnMariaDBTest < Minitest::Test
  include MariaDBHelpers
  include ODBCContract
  include LeftStatesTests::OfServer
  include LeftStatesTests::MariaDB

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = mariadb_source
end

class LeftStatesByODBCOnPostgreSQLTest < Minitest::Test
  include OwnPostgreSQLHelpers
  include ODBCContract
  include LeftStatesTests::OfServer
  include LeftStatesTests::PostgreSQL

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = postgresql_source
end

class LeftStatesByODBCOnSQLiteTest < Minitest::Test
  include ODBCContract
  include LeftStatesTests::OfServer
  include LeftStatesTests::SQLite

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address
    @address ||= source("left", "SQLite", Database: "#{ODBCSources.folder}/left.db", Timeout: 10_000)
  end
end
