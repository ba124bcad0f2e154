# frozen_string_literal: true

require "test_helper"
require "support/simulated"
require "monitor"

runs_on rubies: :ends

# Ruby's locks and queues, among tasks that are cancelled and run out of time at any moment.
class SimulatedLocksTest < Minitest::Test
  include Simulated

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

          sleep(span(world, 0.0..0.5))
        ensure
          inside -= 1 if mutex.owned?
        end
      end
      refute_predicate mutex, :locked?
      assert mutex.try_lock && monitor.try_enter
      mutex.unlock # Ruby may crash if it collects a locked Mutex after the fiber that has locked it
      monitor.exit
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
          5.times { |turn| sleep(span(world, 0.0..0.3)) && queue.push([number, turn]) && put << [number, turn] }
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
      taken = unowned = 0
      among_interruptions(world, 20) do |number|
        if number.even?
          lock.synchronize do
            sleep(span(world, 0.0..0.3)) # a waiter that was woken has to wait for the lock
            things += 1
            filled.signal
          end
        else
          lock.synchronize do
            filled.wait(lock, world.draw(0.1..3.0)) while things.zero?
            things -= 1
            taken += 1
          ensure
            unowned += 1 unless lock.owned? # whatever has ended the wait
          end
        end
      end
      assert_operator taken + things, :<=, 10
      assert_equal 0, unowned
      refute_predicate lock, :locked?
    end
  end
end
