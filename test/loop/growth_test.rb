# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

class GrowthTest < Minitest::Test
  include LoopHelpers

  SLACK_KIB = 16 * 1024

  def test_a_hundred_thousand_tasks_in_one_run
    with_pair do |reader, writer|
      Heddle.run do
        round = lambda do |count|
          count.times.each_slice(50) do |slice|
            slice.map { |index| Heddle.spawn { (index % 5 == 0) ? sleep(0.00001) : sleep(0) } }.each(&:wait)
            Heddle.spawn { reader.readpartial(1) }.tap { writer.write("x") }.value
          end
        end
        assert_no_growth { |count| round.call(count) }
        statistics = Fiber.scheduler.statistics
        assert_equal [0, 1], [statistics[:timers], statistics[:tasks]]
      end
    end
  end

  def test_a_hundred_thousand_scheduled_fibers
    in_thread do
      Fiber.set_scheduler(Heddle::Scheduler.new)
      assert_no_growth(50_000) do |count|
        count.times.each_slice(50) do |slice|
          slice.each { Fiber.schedule { sleep(0) } }
          Heddle.spawn { sleep(0.00001) }.wait
        end
      end
    end
  end

  def test_cancelled_and_failed_tasks
    Heddle.run do
      assert_no_growth(20_000) do |count|
        count.times.each_slice(50) do |slice|
          slice.map { |index| Heddle.spawn { sleep } }.each(&:cancel).each(&:wait)
          task = Heddle.spawn { sleep(0) && raise(IOError) }
          assert_raises(IOError) { task.value }
        end
      end
    end
  end

  def test_pools
    Heddle.run do
      assert_no_growth(20_000) do |count|
        (count / 100).times { Heddle::FiberPool.new(5).map(0...100) { |number| sleep(0) && number } }
      end
    end
  end

  def test_runs_in_threads
    assert_no_growth(2_000, warm_up: 1) do |count|
      (count / 4).times { Array.new(4) { Thread.new { Heddle.run { Heddle.spawn { sleep(0) } } } }.each(&:join) }
    end
  end

  # Tasks that all wait at once, like a burst of requests, and then use deep stacks one after another, like the
  # reading of replies.
  def test_a_burst_leaves_most_stacks_as_small_as_they_were
    skip "a stack's pages can be given back on Linux only" if portable_build?
    out = assert_child(<<~RUBY)
      rss = -> { File.read("/proc/self/status")[/^VmRSS:\\s+(\\d+)/, 1].to_i }
      # each takes a kilobyte of the stack that is C's
      deep = ->(level) { catch { level.zero? || deep.call(level - 1) } }
      GC.disable # it would free the dead ones'
      Heddle.run do
        go = Thread::Queue.new
        tasks = Array.new(4000) { Heddle.spawn { go.pop || deep.call(30) } }
        before = rss.call
        go.close
        tasks.each(&:value)
        print rss.call - before, " ", tasks.count { |task| task.status == :completed }
      end
    RUBY
    growth, completed = out.split.map(&:to_i)
    assert_equal 4000, completed
    # About 44 KiB each, if all kept the pages that they touched; 1024 do.
    assert_operator growth, :<, 100 * 1024
  end

  private

  # A part of the work warms up, so that Ruby's heap has its size. The C library's heaps, one for each thread that was
  # busy at a time, may grow once more; a leak grows each time.
  def assert_no_growth(count = 100_000, warm_up: 10)
    yield(count / warm_up)
    GC.start
    descriptors = descriptor_count
    growth = nil
    3.times do
      before = rss_kib
      yield(count)
      GC.start
      growth = rss_kib - before
      break if growth < SLACK_KIB
    end
    assert_operator growth, :<, SLACK_KIB
    assert_operator descriptor_count, :<=, descriptors
  end
end
