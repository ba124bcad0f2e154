# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Work that grows with the square of the number of tasks or waiters passes every test with few. This counts switches,
# for n and for 2n.
class QuadraticPathsTest < Minitest::Test
  include LoopHelpers

  COUNT = 200

  def test_spawns_into_a_pool_outside_of_any_run
    assert_linear do |count|
      pool = Heddle::FiberPool.new(count)
      count.times { pool.spawn { sleep(0) } }
      statistics = pool.spawn { Fiber.scheduler.statistics }
      pool.close
      statistics.value[:switches]
    end
  end

  def test_tasks_that_wait_for_room_in_a_full_pool
    assert_linear do |count|
      Heddle.run do
        pool = Heddle::FiberPool.new(1, queue: 0)
        switches_of do
          Array.new(count) { Heddle.spawn { pool.spawn { sleep(0) } } }.each(&:value)
          pool.wait
        end
      end
    end
  end

  def test_tasks_that_wait_until_a_pool_is_idle
    assert_linear do |count|
      Heddle.run do
        pool = Heddle::FiberPool.new(10, queue: count)
        switches_of do
          waiters = Array.new(count) { Heddle.spawn { pool.spawn { sleep(0) } && pool.wait } }
          waiters.each(&:wait)
        end
      end
    end
  end

  def test_closes_of_sockets_that_tasks_wait_for
    assert_linear do |count|
      pairs = Array.new(count) { UNIXSocket.pair }
      Heddle.run do
        readers = pairs.map do |reader, _|
          Heddle.spawn do
            reader.readpartial(1)
          rescue IOError
            :closed
          end
        end
        switches_of do
          pairs.each { |reader, _| reader.close }
          assert_equal [:closed], readers.map(&:value).uniq
        end
      end
    ensure
      pairs&.flatten&.each(&:close)
    end
  end

  def test_room_is_given_in_the_order_of_requests
    Heddle.run do
      pool = Heddle::FiberPool.new(2, queue: 1)
      order = []
      tasks = Array.new(50) { |index| Heddle.spawn { pool.spawn { (order << index) && sleep(0) } } }
      tasks.each(&:value)
      pool.wait
      assert_equal Array.new(50) { |index| index }, order
    end
  end

  # A task that is cancelled, or out of time, just as it was given room leaves the room to the next.
  def test_no_room_is_lost_when_waiters_give_up
    Heddle.run do
      random = Random.new(Minitest.seed)
      20.times do
        pool = Heddle::FiberPool.new(2, queue: random.rand(3))
        spawners = Array.new(60) do
          Heddle.spawn do
            Heddle.deadline(random.rand(0.01)) { pool.spawn { Heddle.shield(1) { sleep(random.rand(0.001)) } } }
          rescue Heddle::DeadlineExceeded
            nil
          end
        end
        spawners.each { |spawner| random.rand(3).zero? ? spawner.cancel : sleep(0) }
        spawners.each(&:wait)
        pool.wait
        assert_equal({running: 0, queued: 0, spawned: pool.statistics[:spawned]}, pool.statistics.except(:size))
        room = Heddle.deadline(5) { Array.new(10) { pool.spawn { :room } }.map(&:value) }
        assert_equal [:room] * 10, room
        assert_equal 1, pool.instance_variable_get(:@admission).available
      end
    end
  end

  # The loop makes sure before each sleep without an end that somebody may wake it.
  def test_the_look_for_a_deadlock_beside_many_tasks
    few, many = [10, 10_000].map { |others| look_for_a_deadlock(others) }
    few, many = [10, 10_000].map { |others| look_for_a_deadlock(others) } if many > 3 * few
    assert_operator many, :<=, 3 * few
  end

  def test_waiters_for_room_learn_that_the_pool_was_closed
    Heddle.run do
      pool = Heddle::FiberPool.new(1, queue: 0)
      pool.spawn { sleep(0.01) }
      waiters = Array.new(3) { Heddle.spawn { assert_raises(Heddle::PoolClosed) { pool.spawn { flunk } } } }
      pool.close
      assert_equal [Heddle::PoolClosed], waiters.map { |waiter| waiter.value.class }.uniq
    end
  end

  def test_a_task_that_is_cancelled_in_the_queue_makes_room
    Heddle.run do
      pool = Heddle::FiberPool.new(1, queue: 1)
      blocker = pool.spawn { sleep }
      pool.spawn { flunk }.cancel
      queued = Heddle.deadline(5) { pool.spawn { :ran } }
      blocker.cancel
      assert_equal :ran, queued.value
    end
  end

  private

  # CPU time, the least of three.
  def look_for_a_deadlock(others)
    Heddle.run do
      never = Thread::Queue.new
      tasks = Array.new(others) { Heddle.spawn { never.pop } }
      asked, answers = Thread::Queue.new, Thread::Queue.new
      thread = Thread.new { answers << true while asked.pop }
      Array.new(3) { cpu_time { 200.times { (asked << true) && answers.pop } } }.min
    ensure
      asked.close
      thread.join
      tasks.each(&:cancel)
    end
  end

  def switches_of
    before = Heddle.stats[:switches]
    yield
    Heddle.stats[:switches] - before
  end

  def assert_linear
    few, many = yield(COUNT), yield(2 * COUNT)
    assert_operator few, :<, 20 * COUNT
    assert_operator many, :<=, 3 * few
  end
end
