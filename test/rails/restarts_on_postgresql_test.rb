# frozen_string_literal: true

require "test_helper"
require "rails/restarts"

runs_on rubies: :ends, short: false

# With PostgreSQL, in a database of its own.
class RailsRestartsOnPostgreSQLTest < Minitest::Test
  include RailsRestarts

  hard_deadline 120
  mode :fiber

  NAME = "shop_#{Process.pid}"

  def setup
    manage("create database #{NAME}")
    super
  end

  def teardown
    super
    manage("drop database #{NAME} with (force)")
  end

  private

  def manage(statement)
    connection = Heddle::DB.connect(Servers.postgresql.url)
    connection.exec(statement)
  ensure
    connection&.close
  end

  def url = Servers.postgresql.url.sub(%r{[^/]+\z}, NAME)

  def address = url
end
