# frozen_string_literal: true

require "test_helper"
require "heddle/db/postgresql"
require "support/stream_helpers"
require "support/postgresql_server"
require "shared/db/forks"

# A connection to PostgreSQL in a child of fork.
class PostgreSQLForkTest < Minitest::Test
  include StreamHelpers
  include OwnPostgreSQLHelpers
  include DatabaseSuite::Forks

  hard_deadline 60

  Forking = Struct.new(:work)
  Heddle::DB::PostgreSQL.register_type("forking", encode: {Forking => ->(value) { value.work.call.then { "7" } }})

  def forking(&work) = Forking.new(work)

  def url = postgresql.url

  def ways = [{}, {sslmode: "verify-full", sslrootcert: postgresql.ca_file}, {socket: postgresql.socket_dir}]

  def own_id_sql = "select pg_backend_pid()"

  def text_sql = "select ?::text"

  def number_sql = "select ?::int"

  def sum_sql = "select ?::int + 1"

  def series_sql = "select * from generate_series(1, 10)"

  def seven_later_sql = "select 7 from pg_sleep(0.3)"
end
