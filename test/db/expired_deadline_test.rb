# frozen_string_literal: true

require "test_helper"
require "support/both_modes"
require "support/mariadb_server"
require "support/odbc_contract"
require "support/postgresql_server"

# A deadline passes in the caller's own code: no statement is sent whose answer could not be waited for, and the
# connection stays open.
module ExpiredDeadlineSuite
  DB = Heddle::DB

  INSERT = "insert into expired values (?)"

  WAYS = {query: ->(db) { db.exec(INSERT, 1) }, text: ->(db) { db.query("insert into expired values (1)") },
          prepared: ->(db) { db.prepare(INSERT).exec(1) }, pipeline: ->(db) { db.pipeline { |p| p.query(INSERT, 1) } },
          cursor: ->(db) { db.each_row(INSERT, 1) { nil } },
          transaction: ->(db) { db.transaction { db.exec(INSERT, 1) } },
          ping: ->(db) { db.ping }}.freeze

  def with_db(**options)
    in_host do
      db = connect(**options)
      db.query("create temporary table expired (a int)")
      yield db
    ensure
      db&.close
    end
  end

  # Computes until the deadline has passed.
  def late
    Heddle.deadline(0.001) do
      nil until Heddle.remaining.zero?
      yield
    end
  end

  def refused(db, name, &block)
    assert_raises(Heddle::DeadlineExceeded, name.to_s) { late(&block) }
    assert_equal [false, 0, 0], [db.closed?, db.transaction_depth, db.query_value("select count(*) from expired")], name
    assert_equal 7, db.query_value("select 7")
  end

  def test_nothing_is_sent_behind_a_deadline
    with_db do |db|
      statement = db.prepare(INSERT)
      ways.each { |name, way| refused(db, name) { way.call(db) } }
      refused(db, :statement) { statement.exec(1) }
      assert_equal 1, statement.exec(1)
    end
  end

  # The transaction is rolled back, and the connection is not lost.
  def test_a_commit_is_not_sent
    with_db do |db|
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(5) do
          db.transaction do
            db.exec(INSERT, 1)
            late { nil }
            late { db.exec(INSERT, 2) }
          end
        end
      end
      assert_equal [false, 0], [db.closed?, db.query_value("select count(*) from expired")]
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.2) do
          db.transaction do
            db.exec(INSERT, 1)
            nil until Heddle.remaining.zero?
          end
        end
      end
      assert_equal [false, 0, 0],
        [db.closed?, db.transaction_depth, db.query_value("select count(*) from expired")]
    end
  end

  # Clean-up has time of its own.
  def test_a_shield
    with_db do |db|
      late { Heddle.shield(5) { assert_equal 1, db.exec(INSERT, 1) } }
      assert_equal 1, db.query_value("select count(*) from expired")
    end
  end

  # A close that waits for the next request has no answer: only ODBC would have to wait.
  def test_closes_are_sent
    with_db do |db|
      db.prepare("select 1").close
      late { db.flush_closes }
      assert_equal [closes_left, false], [db.driver.closes, db.closed?]
      db.flush_closes
      assert_equal 0, db.driver.closes
    end
  end

  # The pool takes it back.
  def test_a_connection_of_a_pool
    in_host do
      pool = Heddle::DB::Pool.new(address, size: 1, timeout: 20)
      first = pool.with(&:itself)
      assert_raises(Heddle::DeadlineExceeded) { late { pool.with { |db| db.query("select 1") } } }
      assert_same first, pool.with(&:itself)
    ensure
      pool&.close
    end
  end

  def connect(**options) = Heddle::DB.connect(address, timeout: 20, **options)

  def ways = WAYS

  def closes_left = 0
end

BothModes.define("ExpiredDeadlineOfPostgreSQL", PostgreSQLHelpers, ExpiredDeadlineSuite) do
  def address = postgresql.url

  def ways
    {**super, atomic: ->(db) { db.pipeline(atomic: true) { |p| p.query(self.class::INSERT, 1) } },
              copy: ->(db) { db.copy_in("copy expired from stdin") { |copy| copy << [1] } },
              several: ->(db) { db.query("insert into expired values (1); insert into expired values (2)") }}
  end
end

BothModes.define("ExpiredDeadlineOfMariaDB", MariaDBHelpers, ExpiredDeadlineSuite) do
  def address = mariadb.url
end

{PostgreSQL: [PostgreSQLHelpers, ->(test) { test.postgresql_source }],
 MariaDB: [MariaDBHelpers, ->(test) { test.mariadb_source }],
 SQLite: [Module.new, lambda do |test|
   test.source("expired", "SQLite", Database: "#{ODBCSources.folder}/expired.db")
 end]}.each do |name, (helpers, source)|
  BothModes.define("ExpiredDeadlineOf#{name}ByODBC", StreamHelpers, helpers, ODBCContract, ExpiredDeadlineSuite) do
    define_method(:address) { source.call(self) }

    def closes_left = 1
  end
end
