# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"

# What an interrupted query leaves behind: the thread that sends closes later must not hold its connection for ever.
class MySQLLeaksTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  hard_deadline 60

  QUERIES = 40

  # Each has a close that waits, and owes an answer.
  def interrupt_one
    db = Heddle::DB.connect(mariadb.url, timeout: 10)
    db.prepare("select 1").close
    db.query("select ?", 1)
    assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.005) { db.query("select sleep(0.05)") } }
  end

  def alive
    GC.start
    mysql = Heddle::DB::MySQL
    [Heddle::DB::Connection, mysql::Driver, mysql.const_get(:Link), Heddle::Stream].map { |kind| ObjectSpace.each_object(kind).count }
  end

  def assert_all_go
    Heddle::DB.connect(mariadb.url, timeout: 10).close # loads what there is to load
    before = alive
    yield
    # A few may be on the machine's stack still.
    wait_until(20, what: "the connections to go") { alive.zip(before).all? { |now, then_| now <= then_ + 8 } }
  end

  def test_interrupted_queries_in_threads
    assert_all_go { QUERIES.times { interrupt_one } }
  end

  def test_interrupted_queries_in_tasks
    assert_all_go { Heddle.run { QUERIES.times { Heddle.spawn { interrupt_one }.value } } }
  end

  def test_connections_that_are_dropped_with_closes_that_wait
    assert_all_go do
      QUERIES.times do
        db = Heddle::DB.connect(mariadb.url, timeout: 10)
        db.prepare("select 1").close
      end
    end
  end

  # Of a pipeline whose answers nobody reads.
  def test_connections_that_are_dropped_while_they_owe
    assert_all_go do
      QUERIES.times do
        db = Heddle::DB.connect(mariadb.url, timeout: 10)
        db.prepare("select 1").close
        db.driver.instance_variable_get(:@link).send_query("select 1")
      end
    end
  end
end
