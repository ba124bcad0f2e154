# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "timeout"
require "tmpdir"

# Many timers far in the future, cancelled; and a wall clock that jumps.
class ClockTest < Minitest::Test
  include LoopHelpers

  def test_timers_years_ahead
    Heddle.run do
      far = [365 * 86_400, 100 * 365 * 86_400, 1e9, 1e12, 1e18, 1e300].map { |span| Heddle.spawn { sleep(span) } }
      near = Heddle.spawn { sleep(0.005) && :near }
      assert_equal :near, near.value
      assert far.none?(&:ended?)
      Timeout.timeout(1e9) { sleep(0.001) }
      far.each(&:cancel).each(&:wait)
      assert_equal 0, Fiber.scheduler.statistics[:timers]
    end
  end

  def test_times_that_are_not_numbers
    Heddle.run do
      assert_raises(ArgumentError) { sleep(-1) }
      assert_raises(TypeError) { sleep("1") }
      scheduler = Fiber.scheduler
      [Float::NAN].each do |span|
        assert_raises(ArgumentError, FloatDomainError, RangeError) { scheduler.kernel_sleep(span) }
      end
      endless = Heddle.spawn { scheduler.kernel_sleep(Float::INFINITY) }
      sleep(0.002)
      assert_equal :waiting, endless.status
      endless.cancel.wait
    end
  end

  # A hundred timers for each of a thousand tasks: one task each would need 100 000 stacks.
  def test_a_hundred_thousand_timers_cancelled_in_random_order
    Heddle.run do
      scheduler = Fiber.scheduler
      random = Random.new(1)
      nested = ->(depth) { depth.zero? ? sleep : Timeout.timeout(100 + random.rand) { nested.call(depth - 1) } }
      tasks = Array.new(1000) { Heddle.spawn { nested.call(100) } }
      sleep(0)
      assert_equal 100_000, scheduler.statistics[:timers]
      tasks.shuffle(random: random).each(&:cancel).each(&:wait)
      assert_equal 0, scheduler.statistics[:timers]
      assert_within(1, at_least: 0.001) { sleep(0.001) }
    end
  end

  def test_equal_deadlines_first_come_first_served
    Heddle.run do
      order = []
      tasks = Array.new(200) { |index| Heddle.spawn { sleep(0.05) && order << index } }
      tasks.each(&:wait)
      assert_equal order.sort, order
    end
  end

  JUMPING_CLOCK = <<~C
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>
    int clock_gettime(clockid_t clock, struct timespec *now)
    {
        int result = (int)syscall(SYS_clock_gettime, clock, now);
        if (clock == CLOCK_REALTIME) now->tv_sec += (rand() % 20000 - 10000) * 1000;
        return result;
    }
    int gettimeofday(struct timeval *restrict now, void *restrict zone)
    {
        struct timespec precise;
        (void)zone;
        clock_gettime(CLOCK_REALTIME, &precise);
        now->tv_sec = precise.tv_sec;
        now->tv_usec = precise.tv_nsec / 1000;
        return 0;
    }
    time_t time(time_t *result)
    {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        if (result) *result = now.tv_sec;
        return now.tv_sec;
    }
  C

  # The wall clock is months off at each reading. (A library in front of libc stands in for settimeofday, which would
  # disturb the whole machine.)
  def test_a_wall_clock_that_jumps
    Dir.mktmpdir do |folder|
      File.write("#{folder}/clock.c", JUMPING_CLOCK)
      unless system("cc", "-shared", "-fPIC", "-o", "#{folder}/clock.so", "#{folder}/clock.c")
        skip "there is no C compiler"
      end
      out = assert_child(<<~RUBY, env: {"LD_PRELOAD" => [ENV["LD_PRELOAD"], "#{folder}/clock.so"].compact.join(":")})
        require "timeout"
        jumps = Array.new(10) { Time.now.to_i }.uniq.size
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        Heddle.run do
          tasks = Array.new(20) { |index| Heddle.spawn { 5.times { sleep(0.002 * index) } } }
          begin
            Timeout.timeout(0.05) { sleep }
          rescue Timeout::Error
            nil
          end
          reader, = IO.pipe
          reader.wait_readable(0.02)
          tasks.each { |task| task.wait(5) or abort "late" }
        end
        took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
        puts jumps > 5, took.between?(0.15, 3)
      RUBY
      assert_equal %w[true true], out.split
    end
  end
end
