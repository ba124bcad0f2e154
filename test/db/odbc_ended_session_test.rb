# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/odbc_contract"
require "support/postgresql_server"

# The server ends a session, and each next call by ODBC says so, whatever the driver calls it.
class ODBCEndedSessionTest < Minitest::Test
  include ODBCContract
  include MariaDBHelpers
  include OwnPostgreSQLHelpers

  hard_deadline 60

  WAYS = {prepare: ->(db) { db.prepare("select 1 + ?") }, query: ->(db) { db.query("select ?", 1) },
          text: ->(db) { db.query("select 1") }, cursor: ->(db) { db.each_row("select 1") { nil } },
          pipeline: ->(db) { db.pipeline { |p| p.query("select 1") }.value }, begin: ->(db) { begin_and_use(db) },
          ping: ->(db) { db.ping }}.freeze

  # Some drivers begin a transaction without the server.
  def self.begin_and_use(db)
    db.start_transaction
    db.query("select 1")
  end

  WAYS.each do |name, way|
    define_method(:"test_#{name}_of_postgresql") { assert_lost(postgresql_source, :end_of_postgresql, way) }
    define_method(:"test_#{name}_of_mariadb") { assert_lost(mariadb_source, :end_of_mariadb, way) }
  end

  def test_commit
    {postgresql_source => :end_of_postgresql, mariadb_source => :end_of_mariadb}.each do |address, ending|
      assert_lost(address, ending, :commit.to_proc) do |db|
        db.start_transaction
        db.query("select 1")
      end
    end
  end

  # Not of the errors after which a connection goes on, for which there is no better state either.
  def test_other_errors
    [postgresql_source, mariadb_source].each do |address|
      with(address) do |db|
        assert_raises(Heddle::DB::ServerError) { db.query("select * from nowhere_at_all") }
        assert_equal 1, db.query_value("select 1")
      end
    end
  end

  private

  def assert_lost(address, ending, way)
    with(address) do |db|
      yield db if block_given?
      send(ending, db)
      assert_raises(Heddle::DB::ConnectionLost) { way.call(db) }
      assert_predicate db, :closed?
    end
  end

  def end_of_postgresql(db)
    id = db.query_value("select pg_backend_pid()")
    by(postgresql.url) do |other|
      other.query("select pg_terminate_backend(?)", id)
      wait_until { other.query_value("select count(*) from pg_stat_activity where pid = ?", id).zero? }
    end
  end

  def end_of_mariadb(db)
    id = db.query_value("select connection_id()")
    by(mariadb.url) do |other|
      other.query("kill #{id}")
      wait_until do
        other.query_value("select count(*) from information_schema.processlist where id = ?", id).zero?
      end
    end
  end

  def by(url)
    other = Heddle::DB.connect(url, timeout: 20)
    yield other
  ensure
    other&.close
  end
end
