# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"
require "shared/db/forks"

# A connection to MariaDB in a child of fork.
class MySQLForkTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers
  include DatabaseSuite::Forks

  hard_deadline 60

  def url = mariadb.url

  def ways = [{}, {tls: {ca_file: mariadb.ca_file}}, {socket: mariadb.socket}]

  def own_id_sql = "select connection_id()"

  def text_sql = "select ?"

  def number_sql = "select ?"

  def sum_sql = "select ? + 1"

  def series_sql = "select seq from seq_1_to_10"

  Forking = Struct.new(:work) do
    def to_time = Time.at(0).tap { work.call }
  end

  def forking(&work) = Forking.new(work)

  def seven_later_sql = "select sleep(0.3) + 7"
end
