# frozen_string_literal: true

require "test_helper"
require "minitest/mock"
require "support/loop_helpers"
require "tempfile"

runs_on rubies: :ends, backends: :one

# ActiveRecord gives a connection back to its pool, and Heddle first has it settled: interrupted meanwhile, the pool
# gets its place back, and nobody gets the connection as it is.
class InterruptedCheckinTest < Minitest::Test
  include LoopHelpers

  class Interrupted < StandardError; end

  def setup
    require "active_record"
    require "heddle/active_record"
  end

  def test_an_interrupt_while_a_connection_is_settled_keeps_its_place
    with_pool do |pool|
      connection = pool.checkout
      raw = connection.raw_connection
      raw.execute("begin") # what the interrupt leaves open
      gem = Heddle.const_get(:DatabaseGems).of(raw)
      gem.stub(:clean?, ->(_) { raise Interrupted }) { assert_raises(Interrupted) { pool.checkin(connection) } }
      assert_equal 0, pool.stat[:busy]
      again = pool.checkout(1)
      refute_predicate raw, :transaction_active?
      assert_equal 1, again.select_value("select 1")
    end
  end

  private

  def with_pool
    Tempfile.create("database") do |file|
      ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: file.path, pool: 1)
      yield ActiveRecord::Base.connection_pool
    ensure
      ActiveRecord::Base.remove_connection
    end
  end
end
