# frozen_string_literal: true

require "test_helper"
require "support/odbc_contract"
require "support/scripted_tds"

# FreeTDS against a server that only greets and refuses: SQL Server itself is not at hand.
class ODBCTDSTest < Minitest::Test
  include ODBCContract

  hard_deadline 60

  def setup
    @server = ScriptedTDS.new("ann")
    @address = source("tds#{@server.port}", "FreeTDS", Server: "127.0.0.1", Port: @server.port, TDS_Version: "7.1")
  end

  def teardown = @server&.close

  def test_a_refused_log_in
    error = assert_raises(Heddle::DB::LoginFailed) do
      Heddle::DB.connect(@address, user: "bob", password: "secret", timeout: 10)
    end
    assert_includes error.message, "Login failed."
    refute_includes error.message, "secret"
  end

  def test_a_tds_server_is_recognized
    db = Heddle::DB.connect(@address, user: "ann", password: "secret", timeout: 10)
    assert_equal :odbc, db.database_type
    assert_includes db.inspect, "Microsoft SQL Server"
    refute_includes db.inspect, "secret"
    error = assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere") }
    assert_equal ["42S02", 208, "Invalid object name 'nowhere'."], [error.sql_state, error.code, error.message]
    assert_equal :value, db.transaction { :value }
    assert_predicate db, :healthy?
  ensure
    db&.close
  end
end
