# frozen_string_literal: true

require "test_helper"
require "unmodified/unmodified_test_case"

class UnmodifiedPgTest < UnmodifiedTestCase
  DELAY = 0.2

  def setup
    super
    require "pg"
    @server = server(:postgresql)
    @expected = Array.new(COUNT) { |i| [i.to_s] }
  end

  # More time than for the others: the login is 4096 rounds of SHA-256 for each connection.
  on_each_host "twenty queries of 200 ms" do |host|
    assert_at_once(host, each: DELAY, under: 1.5, expected: @expected) { |i| query(i) }
  end

  def test_the_same_queries_in_a_row
    assert_in_a_row(each: DELAY, expected: @expected) { |i| query(i) }
  end

  on_each_host "a failed query does not affect the others" do |host|
    results = at_once(host, 3) do |i|
      connect { |db| db.exec("select 6 / #{i}, pg_sleep(0.01)").getvalue(0, 0) }
    rescue PG::DivisionByZero => e
      e.class.name
    end
    assert_equal ["PG::DivisionByZero", "6", "3"], results
  end

  # libpq closes its sockets with close(2). A poll that is left in an io_uring keeps them open in the kernel: the
  # server sees no end.
  def test_finished_connections_leave_nothing_in_the_kernel
    Heddle.run do
      count = 100
      count.times do
        connect { |db| db.exec_params("select repeat('x', 200000)", []) }
      end
      wait_until(5, what: "the end of all connections") { sockets_without_a_descriptor.zero? }
    end
  end

  private

  # Our sockets that the server has already closed.
  def sockets_without_a_descriptor
    port = format(":%04X", @server.port)
    %w[tcp tcp6].sum do |name|
      File.readlines("/proc/net/#{name}").drop(1).map(&:split).count do |line|
        line[2].end_with?(port) && line[3] == "08"
      end
    end
  end

  def query(i)
    connect { |db| db.exec_params("select $1::int, pg_sleep($2)", [i, DELAY]).column_values(0) }
  end

  def connect
    db = PG.connect(host: "localhost", port: @server.port, user: @server.username, password: @server.password,
      dbname: @server.database)
    yield db
  ensure
    db&.close
  end
end
