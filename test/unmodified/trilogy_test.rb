# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

class UnmodifiedTrilogyTest < UnmodifiedTestCase
  DELAY = 0.2

  def setup
    super
    require "trilogy"
    @server = server(:mariadb)
    @expected = Array.new(COUNT) { |i| [i, 0] }
  end

  on_each_host "twenty queries of 200 ms" do |host|
    assert_at_once(host, each: DELAY, under: 1.0, expected: @expected) { |i| query(i) }
  end

  def test_the_same_queries_in_a_row
    assert_in_a_row(each: DELAY, expected: @expected) { |i| query(i) }
  end

  # Each wait of trilogy's costs Ruby an IO, made in C the moment before, so that one time in some thousands a
  # collection leaves finalizers pending when the loop goes to sleep. Ruby refuses to sleep until they have run.
  def test_finalizers_pending_when_the_loop_goes_to_sleep
    Heddle.run do
      db = connect
      30_000.times { |i| assert_equal 1, db.query("select #{i}").count }
      db.close
    end
  end

  private

  def query(i)
    db = connect
    db.query("select #{i}, sleep(#{DELAY})").rows.first
  ensure
    db&.close
  end

  def connect
    Trilogy.new(host: @server.host, port: @server.port, username: @server.username, password: @server.password,
      database: @server.database)
  end
end
