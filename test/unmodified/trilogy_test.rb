# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

class UnmodifiedTrilogyTest < UnmodifiedTestCase
  DELAY = 0.2

  def setup
    super
    library "trilogy"
    @server = server(:mariadb)
    @expected = Array.new(COUNT) { |i| [i, 0] }
  end

  on_each_host "twenty queries of 200 ms" do |host|
    assert_at_once(host, each: DELAY, under: 1.0, expected: @expected) { |i| query(i) }
  end

  def test_the_same_queries_in_a_row
    assert_in_a_row(each: DELAY, expected: @expected) { |i| query(i) }
  end

  private

  def query(i)
    db = Trilogy.new(host: @server.host, port: @server.port, username: @server.username,
      password: @server.password, database: @server.database)
    db.query("select #{i}, sleep(#{DELAY})").rows.first
  ensure
    db&.close
  end
end
