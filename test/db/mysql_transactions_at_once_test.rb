# frozen_string_literal: true

require "test_helper"
require "support/stream_helpers"
require "support/mariadb_server"

# Threads begin and end transactions of one pool at the same time.
class MySQLTransactionsAtOnceTest < Minitest::Test
  include StreamHelpers
  include MariaDBHelpers

  mode :thread
  hard_deadline 60

  def test_a_transaction_that_begins_while_another_one_ends
    pool = Heddle::DB::Pool.new(mariadb.url, size: 2, timeout: 10)
    seen = 0
    trace = TracePoint.new(:line, :b_call) do |point|
      next unless point.path.end_with?("db/pool.rb") && point.method_id == :leave

      seen += 1
      Thread.new { pool.transaction { |db| db.query_value("select 1") } }.join
    end
    pool.transaction { trace.enable(target_thread: Thread.current) }
    trace.disable
    assert_operator seen, :>, 0
    assert_equal({connections: 2, free: 2, waiting: 0}, pool.stats)
  ensure
    trace&.disable
    pool&.close
  end
end
