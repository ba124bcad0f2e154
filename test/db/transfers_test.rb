# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/mysql_server"
require "support/odbc_contract"
require "support/postgresql_server"
require "support/sqlite_helpers"
require "shared/db/transfers"

runs_on short: false

# Transfers between accounts among interrupts, by each driver; see DatabaseTransfers.
module TransfersTests
  # Databases with a server.
  module OfServer
    include DatabaseTransfers

    def pools = server_pools(DatabaseInterrupts::PLACES)
  end

  # MySQL's and MariaDB's server of this process ends any connection but the killer's.
  module EndedByMySQL
    OTHERS = "select id from information_schema.processlist where id <> connection_id() and command in " \
      "('Query', 'Execute', 'Sleep') order by rand() limit 1"

    private

    def kill_one
      plainly do |db|
        id = db.query_value_or_nil(OTHERS)
        id && db.query("kill #{id}")
      rescue Heddle::DB::ServerError => error
        raise unless error.code == 1094 # it has ended meanwhile
      end
    end
  end

  # PostgreSQL ends what works on the accounts.
  module EndedByPostgreSQL
    private

    def kill_one
      plainly do |db|
        db.query_value_or_nil("select pg_terminate_backend(pid) from pg_locks where pid <> pg_backend_pid() and " \
          "relation = 'accounts'::regclass order by random() limit 1")
      end
    end
  end

  # In this process.
  module Unlocked
    private

    def for_update = ""

    def refuses_late? = false

    def isolations = [:serializable]
  end
end

class TransfersOnPostgreSQLTest < Minitest::Test
  include OwnPostgreSQLHelpers
  include TransfersTests::OfServer
  include TransfersTests::EndedByPostgreSQL

  hard_deadline DatabaseInterrupts::SECONDS + 60
  WAYS = [*DatabaseTransfers::WAYS, :in_one_flight].freeze

  def address = postgresql.url

  private

  def ways = WAYS

  # The commit is sent with the statements.
  def in_one_flight(pool, transfer, _random)
    pool.pipeline(atomic: true) do |pipeline|
      transfer.changes.each { |change| pipeline.query(self.class::CHANGE, *change) }
      pipeline.query(self.class::INSERT, *transfer)
      yield true
    end
  end
end

class TransfersOnMariaDBTest < Minitest::Test
  include MariaDBHelpers
  include TransfersTests::OfServer
  include TransfersTests::EndedByMySQL

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = mariadb.url
end

class TransfersOnMySQLTest < Minitest::Test
  include MySQLHelpers
  include TransfersTests::OfServer
  include TransfersTests::EndedByMySQL

  hard_deadline DatabaseInterrupts::SECONDS + 120

  def address = mysql.url
end

class TransfersOnSQLiteTest < Minitest::Test
  include SQLiteHelpers
  include DatabaseTransfers
  include TransfersTests::Unlocked

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = "sqlite://#{@path}"

  def pools = sqlite_pools(DatabaseInterrupts::PLACES)
end

class TransfersByODBCOnMariaDBTest < Minitest::Test
  include MariaDBHelpers
  include ODBCContract
  include TransfersTests::OfServer
  include TransfersTests::EndedByMySQL

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = mariadb_source
end

class TransfersByODBCOnPostgreSQLTest < Minitest::Test
  include OwnPostgreSQLHelpers
  include ODBCContract
  include TransfersTests::OfServer
  include TransfersTests::EndedByPostgreSQL

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address = postgresql_source
end

class TransfersByODBCOnSQLiteTest < Minitest::Test
  include ODBCContract
  include TransfersTests::OfServer
  include TransfersTests::Unlocked

  hard_deadline DatabaseInterrupts::SECONDS + 60

  def address
    @address ||= source("transfers", "SQLite", Database: "#{ODBCSources.folder}/transfers.db", Timeout: 10_000)
  end

  private

  def refuses_late? = true
end
