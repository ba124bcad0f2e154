# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/postgresql_server"
require "support/odbc_contract"

# A statement that may have run is not sent again, whatever its error's number: a procedure may commit, and then raise
# each of them. A statement that the server has forgotten is prepared again by the next call.
class ODBCRepeatedTest < Minitest::Test
  include ODBCContract
  include MariaDBHelpers
  include PostgreSQLHelpers

  hard_deadline 60

  def test_procedures_of_mariadb_run_once
    with(mariadb_source) do |db|
      db.query("create or replace table repeated (n int)")
      [1243, 1615, 1295, 1235, 1461].each do |number|
        db.query("create or replace procedure repeating(x int) begin insert into repeated values (x); " \
          "signal sqlstate 'HY000' set mysql_errno = #{number}; end")
        assert_once(db, number)
      end
    end
  end

  def test_procedures_of_postgresql_run_once
    with(postgresql_source) do |db|
      db.query("create table if not exists repeated (n int)")
      ["26000", "0A000", "0A000 cached plan must not change result type"].each do |error|
        state, text = error.split(" ", 2)
        db.query("create or replace procedure repeating(x int) language plpgsql as $$ begin " \
          "insert into repeated values (x); commit; raise '#{text || "x"}' using errcode = '#{state}'; end $$")
        assert_once(db, error)
      end
    end
  end

  # With UseServerSidePrepare=1 the server has the statement.
  def test_a_statement_that_the_server_has_forgotten
    with(postgresql_source(UseServerSidePrepare: 1), statement_cache: :always) do |db|
      kept = ["select 1 + ?::int", 1]
      statement = db.prepare("select 2 + ?::int")
      3.times { assert_equal [2, 4], [db.query_value(*kept), statement.query(2)[0][0]] }
      db.query("deallocate all")
      assert_equal "26000", assert_raises(Heddle::DB::ServerError) { statement.query(2) }.sql_state
      2.times { assert_equal [2, 4], [db.query_value(*kept), statement.query(2)[0][0]] }
    end
  end

  private

  def assert_once(db, error)
    db.query("delete from repeated")
    statement = db.prepare("call repeating(?)")
    3.times do |n|
      assert_raises(Heddle::DB::ServerError) { statement.query(n) }
      assert_raises(Heddle::DB::ServerError) { db.query("call repeating(?)", n + 10) }
      assert_raises(Heddle::DB::ServerError) { db.query("call repeating(#{n + 20})") }
    end
    assert_equal [0, 1, 2, 10, 11, 12, 20, 21, 22], db.query_column("select n from repeated order by n"), error
  end
end
