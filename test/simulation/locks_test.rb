# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "monitor"

# Ruby's locks and queues, and everything of Heddle's that hands out places, among tasks that are cancelled and run out
# of time at any moment.
class SimulatedLocksTest < Minitest::Test
  include Simulated

  # @return [Integer] how many were ended
  def among_interruptions(world, count, deadlines: true, &block)
    tasks = Array.new(count) { |number| Heddle.spawn { one(world, number, deadlines, &block) } }
    striker = Heddle.spawn do
      loop do
        sleep(world.draw(0.0..1.5))
        tasks.sample(random: world.random).cancel
      end
    end
    tasks.each(&:wait)
    striker.cancel
    tasks.count { |task| task.status == :cancelled || task.value == :late }
  end

  def one(world, number, deadlines)
    sleep(world.draw(0.0..2.0))
    Heddle.deadline(deadlines ? world.draw(0.05..4.0) : nil) { yield number }
  rescue Heddle::DeadlineExceeded
    :late
  end

  def test_a_mutex_has_one_owner_and_comes_back
    ended = 0
    simulate(150) do |world|
      mutex, monitor = Thread::Mutex.new, Monitor.new
      inside = 0
      ended += among_interruptions(world, 20) do
        ((world.draw < 0.5) ? mutex : monitor).synchronize do
          mutex.owned? || monitor.mon_owned? || raise("no owner")
          inside += 1 if mutex.owned?
          raise "#{inside} owners" if inside > 1

          sleep(world.draw(0.0..0.5))
        ensure
          inside -= 1 if mutex.owned?
        end
      end
      refute_predicate mutex, :locked?
      assert mutex.try_lock && monitor.try_enter
    end
    assert_operator ended, :>, 0
  end

  # Each thing that was put in comes out once, or is still in, or was in the hands of one that ended.
  def test_queues_lose_and_double_nothing
    simulate(150) do |world|
      queue = (world.draw < 0.5) ? Thread::Queue.new : Thread::SizedQueue.new(3)
      put, got = [], []
      among_interruptions(world, 20) do |number|
        if number.even?
          5.times { |turn| sleep(world.draw(0.0..0.3)) && queue.push([number, turn]) && put << [number, turn] }
        else
          5.times { got << queue.pop }
        end
      end
      left = Array.new(queue.size) { queue.pop }
      assert_empty (got + left).tally.select { |_, count| count > 1 }
      assert_empty put - got - left
      assert_equal 0, queue.num_waiting
    end
  end

  def test_a_condition_wakes_one_for_each_signal
    simulate(150) do |world|
      lock, filled, things = Thread::Mutex.new, Thread::ConditionVariable.new, 0
      taken = 0
      among_interruptions(world, 20) do |number|
        if number.even?
          lock.synchronize { things += 1 }
          filled.signal
        else
          lock.synchronize do
            filled.wait(lock, world.draw(0.1..3.0)) while things.zero?
            things -= 1
            taken += 1
          end
        end
      end
      assert_operator taken + things, :<=, 10
      refute_predicate lock, :locked?
    end
  end

  def test_a_pool_has_its_places_back
    simulate(150) do |world|
      limit = world.draw(1..4)
      pool = Heddle::FiberPool.new(limit)
      inside = most = 0
      among_interruptions(world, 20, deadlines: false) do # they would bind the pool's tasks
        pool.spawn do
          most = [most, inside += 1].max
          sleep(world.draw(0.0..0.5))
        ensure
          inside -= 1
        end.value
      rescue Heddle::TaskCancelled
        nil
      end
      sleep 1
      assert_operator most, :<=, limit
      assert_equal 0, inside
      before = world.now
      Array.new(limit) { pool.spawn { sleep 10 } }.each(&:value)
      assert_in_delta 10, world.now - before, 0.001 # all at once
    end
  end
end
