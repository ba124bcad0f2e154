# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"

# Leftovers of an interrupted query: the thread that sends closes later must not hold its connection for ever.
class MySQLLeaksTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  QUERIES = 40

  # Each has a pending close, and an unread answer.
  def interrupt_one
    db = Heddle::DB.connect(mariadb.url, timeout: 10)
    db.prepare("select 1").close
    db.query("select ?", 1)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.005) { db.query("select sleep(0.05)") } }
  end

  def alive
    GC.start
    mysql = Heddle::DB::MySQL
    [Heddle::DB::Connection, mysql::Driver, mysql.const_get(:Protocol), Heddle::Stream].map do |kind|
      ObjectSpace.each_object(kind).count
    end
  end

  def assert_all_go
    Heddle::DB.connect(mariadb.url, timeout: 10).close # loads all files that are loaded lazily
    before = alive
    yield
    # A few may still be referred to from the machine's stack.
    wait_until(20, what: "the connections to go") { alive.zip(before).all? { |now, then_| now <= then_ + 8 } }
  end

  def test_interrupted_queries_in_threads
    assert_all_go { QUERIES.times { interrupt_one } }
  end

  def test_interrupted_queries_in_tasks
    assert_all_go { Heddle.run { QUERIES.times { Heddle.spawn { interrupt_one }.value } } }
  end

  def test_dropped_connections_with_pending_closes
    assert_all_go do
      QUERIES.times do
        db = Heddle::DB.connect(mariadb.url, timeout: 10)
        db.prepare("select 1").close
      end
    end
  end

  # Of a pipeline whose answers nobody reads.
  def test_dropped_connections_with_unread_answers
    assert_all_go do
      QUERIES.times do
        db = Heddle::DB.connect(mariadb.url, timeout: 10)
        db.prepare("select 1").close
        db.driver.instance_variable_get(:@protocol).send_query("select 1")
      end
    end
  end
end
