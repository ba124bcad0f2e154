# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/servers"
require "net/http"

# A pool that is closed while it is full, its queue is full and callers wait to add to it.
class PoolClosedUnderLoadTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  def get(path) = Net::HTTP.start("127.0.0.1", Servers.load.port) { |http| http.get(path).body }

  def test_accepted_items_are_done_and_no_others
    Servers.load
    Heddle.run do
      pool = Heddle::FiberPool.new(20, queue: 20)
      taken, refused = [], []
      gate = Thread::Queue.new # no item ends before all places are taken, however busy the machine is
      callers = Array.new(100) do |i|
        Heddle.spawn do
          taken << pool.spawn { gate.pop || get("/100") }
        rescue Heddle::PoolClosed
          refused << i
        end
      end
      wait_until { taken.size == 40 }
      assert_equal 60, callers.count { |caller| caller.status != :completed }
      gate.close
      pool.close
      callers.each(&:value)
      assert_equal [40, 60], [taken.size, refused.size]
      assert_equal ["done"] * 40, taken.map(&:value)
      assert_equal({size: 20, running: 0, queued: 0, spawned: 40}, pool.statistics)
    end
  end

  def test_a_close_from_another_thread
    Servers.load
    Heddle.run do
      pool = Heddle::FiberPool.new(10)
      tasks = Array.new(20) { pool.spawn { get("/100") } }
      closer = Thread.new { pool.close }
      assert_equal ["done"] * 20, tasks.map(&:value)
      assert_same pool, closer.value
      assert_raises(Heddle::PoolClosed) { pool.spawn {} }
    end
  end

  def test_a_close_in_the_middle_of_a_map
    Servers.load
    Heddle.run do
      pool = Heddle::FiberPool.new(10, queue: 0)
      done = 0
      map = Heddle.spawn { pool.map(1..Float::INFINITY) { get("/20") && done += 1 } }
      wait_until { done >= 30 }
      assert_within(5, remeasure: 0) { pool.close }
      assert_raises(Heddle::PoolClosed) { map.value }
      at_close = done
      sleep 0.1
      assert_equal at_close, done
      assert_equal 0, pool.statistics[:running]
    end
  end
end
