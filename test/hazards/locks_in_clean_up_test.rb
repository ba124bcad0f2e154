# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "heddle/db"
require "heddle/db/mysql"

# Clean-up that has to wait for a lock. A passed deadline ends every wait, and so does a second cancel; the clean-up
# must wait all the same.
class LocksInCleanUpTest < Minitest::Test
  include LoopHelpers

  mode :fiber

  # A lock that others hold, for a moment, whenever a caller wants it.
  class BusyLock < Thread::Mutex
    def synchronize
      Kernel.sleep(0.005) # Mutex has its own #sleep
      super
    end
  end

  # A server that cannot be reached, and records who tried.
  class Server
    attr_reader :asked

    def initialize = @asked = Thread::Queue.new

    def failures = [KeyError]

    def connect(_seconds)
      @asked << true
      raise KeyError
    end
  end

  def test_the_killer_gets_its_query
    killer, server = Heddle::DB::MySQL::Killer, Server.new
    after_a_deadline { busily(killer) { killer.kill(server, 1, [1, nil]) } }
    wait_until(what: "a call of the server") { !server.asked.empty? }
  end

  def test_a_pool_of_connections_is_closed
    pool = Heddle::DB::Pool.new("mysql://me@127.0.0.1/base")
    after_a_deadline { busily(pool) { pool.close } }
    assert_predicate pool, :closed?
  end

  def test_waiters_for_room_in_a_fiber_pool_learn_of_its_end
    Heddle.run do
      pool = Heddle::FiberPool.new(1)
      let_go = Thread::Queue.new
      2.times { pool.spawn { let_go.pop } } # one runs, one is queued
      told = false
      Heddle.spawn { assert_raises(Heddle::PoolClosed) { pool.spawn { :never } } && told = true }
      after_a_deadline { busily(pool) { pool.close } }
      wait_until(what: "the end of the wait for room") { told }
      let_go.close
    end
  end

  def test_a_place_in_a_pool_of_fibers_is_given_back
    Heddle.run do
      pool = Heddle::FiberPool.new(1)
      task = Heddle::Task.prepare(Fiber.scheduler, nil, nil, false) {}
      pool.instance_variable_get(:@running)[task] = true
      after_a_deadline { busily(pool) { pool.send(:leave_place, task) } }
      assert_equal 0, pool.statistics[:running]
    end
  end

  private

  # Calls the block in an `ensure`, within a passed deadline.
  def after_a_deadline(&clean_up)
    body = lambda do
      Heddle.deadline(0.001) do
        sleep
      ensure
        clean_up.call
      end
    rescue Heddle::DeadlineExceeded
      nil
    end
    Fiber.scheduler ? body.call : Heddle.run(&body)
  end

  def busily(object)
    lock = object.instance_variable_get(:@lock)
    object.instance_variable_set(:@lock, BusyLock.new)
    yield
  ensure
    object.instance_variable_set(:@lock, lock)
  end
end
