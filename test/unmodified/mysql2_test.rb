# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

class UnmodifiedMysql2Test < UnmodifiedTestCase
  DELAY = 0.2

  def setup
    super
    require "mysql2"
    @server = server(:mariadb)
    @expected = Array.new(COUNT) { |i| {"number" => i, "slept" => 0} }
  end

  on_each_host "twenty queries of 200 ms" do |host|
    assert_at_once(host, each: DELAY, under: 1.0, expected: @expected) { |i| query(i) }
  end

  def test_the_same_queries_in_a_row
    assert_in_a_row(each: DELAY, expected: @expected) { |i| query(i) }
  end

  private

  def query(i)
    db = Mysql2::Client.new(host: @server.host, port: @server.port, username: @server.username,
      password: @server.password, database: @server.database)
    db.query("select #{i} as number, sleep(#{DELAY}) as slept").first
  ensure
    db&.close
  end
end
