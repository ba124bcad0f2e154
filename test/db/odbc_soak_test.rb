# frozen_string_literal: true

require "test_helper"
require "support/mariadb_server"
require "support/odbc_contract"
require "shared/db/soak"

runs_on short: false

# Drivers of ODBC among interrupts; see DatabaseSoak.
module ODBCSoak
  include ODBCContract
  include DatabaseSoak

  # The driver is loaded, and keeps files of its own open.
  def setup
    Heddle::DB.connect(address).close
    super
  end

  def pools = [Heddle::DB::Pool.new(address, size: DatabaseSoak::PLACES, timeout: 20, checkout_timeout: 20)]

  def rows
    db = Heddle::DB.connect(address)
    db.query_column("select n from soak")
  ensure
    db&.close
  end
end

# By libsqliteodbc, whose locks make writers wait in the driver.
class ODBCSQLiteSoakTest < Minitest::Test
  include ODBCSoak

  hard_deadline DatabaseSoak::SECONDS + 60

  def address
    @address ||= source("soak", "SQLite", Database: "#{ODBCSources.folder}/soak.db", Timeout: 10_000)
  end

  def endless_sql = "with recursive c (n) as (select 1 union all select n + 1 from c) select count(*) from c"
end

# By MariaDB's own driver.
class ODBCMariaDBSoakTest < Minitest::Test
  include MariaDBHelpers
  include ODBCSoak

  hard_deadline DatabaseSoak::SECONDS + 60

  def address = mariadb_source

  def endless_sql = "select sleep(20)"
end
