# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"

# A million timers that are all cancelled: leftovers in the heap would show here.
class TimerGrowthTest < Minitest::Test
  include LoopHelpers

  COUNT = 1_000_000

  def test_a_million_cancelled_timers_leave_nothing
    Heddle.run do
      scheduler = Fiber.scheduler
      most = 0
      round = lambda do |count|
        count.times do
          scheduler.timeout_after(3600, Timeout::Error, "late") do
            now = scheduler.statistics[:timers] if (count & 1023).zero?
            most = now if now && now > most
          end
        end
      end
      round.call(50_000)
      GC.start
      before = rss_kib
      round.call(COUNT)
      GC.start
      assert_equal 0, scheduler.statistics[:timers]
      assert_operator most, :<=, 1
      assert_operator rss_kib - before, :<, 8 * 1024
    end
  end

  def test_timeout_of_the_standard_library_uses_them
    Heddle.run do
      threads = Thread.list.size
      1000.times { Timeout.timeout(3600) { assert_operator Fiber.scheduler.statistics[:timers], :<=, 1 } }
      assert_equal 0, Fiber.scheduler.statistics[:timers]
      waiter = Heddle.spawn { Timeout.timeout(3600) { sleep } }
      assert_equal 1, Fiber.scheduler.statistics[:timers]
      waiter.cancel.wait
      assert_equal 0, Fiber.scheduler.statistics[:timers]
      assert_equal threads, Thread.list.size
    end
  end

  def test_waits_with_a_timeout_that_end_before_it
    Heddle.run do
      mutex = Thread::Mutex.new
      signal = Thread::ConditionVariable.new
      turns = 0
      waiter = Heddle.spawn { mutex.synchronize { signal.wait(mutex, 3600) && turns += 1 while turns < 20_000 } }
      rss = nil
      until waiter.ended?
        mutex.synchronize { signal.signal }
        sleep(0)
        rss = rss_kib if turns == 2000
      end
      assert_equal 20_000, turns
      assert_equal 0, Fiber.scheduler.statistics[:timers]
      assert_operator rss_kib - rss, :<, 8 * 1024
    end
  end
end
