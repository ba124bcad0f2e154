# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# poll(2) refuses more entries than the process may have descriptors. Yet fewer descriptors than that may be waited
# for more often: by several tasks, or named twice in one IO.select. And the limit may be lowered afterwards.
class DescriptorLimitTest < Minitest::Test
  include LoopHelpers

  def test_more_waits_than_descriptors
    assert_equal "[[:completed, nil]] readable\n", assert_child(<<~RUBY)
      require "io/wait"
      Process.setrlimit(:NOFILE, 64, 64)
      Heddle.run do
        near, far = UNIXSocket.pair
        tasks = Array.new(100) { Heddle.spawn { near.wait_readable(0.01) } }
        reader = Heddle.spawn { near.wait_readable && :readable }
        states = tasks.map { |task| task.wait && [task.status, task.error&.class] }
        far.write("x")
        puts [states.uniq.inspect, reader.value].join(" ")
      end
    RUBY
  end

  def test_selects_that_list_a_descriptor_many_times
    [0, 5].each do |timeout|
      assert_equal "nil 100\n", assert_child(<<~RUBY)
        Process.setrlimit(:NOFILE, 64, 64)
        Heddle.run do
          near, far = UNIXSocket.pair
          none = IO.select([near] * 100, nil, nil, #{timeout} / 100.0)
          far.write("x")
          puts [none.inspect, IO.select([near] * 100, nil, nil, #{timeout})&.first&.size.inspect].join(" ")
        end
      RUBY
    end
  end

  # As a program that opens what it needs, then gives up the right to open more.
  def test_a_limit_that_is_lowered_later
    assert_equal "[:completed] 20 popped true\n", assert_child(<<~RUBY)
      require "io/wait"
      Heddle.run do
        pairs = Array.new(30) { UNIXSocket.pair }
        queue = Thread::Queue.new
        popping = Heddle.spawn { queue.pop }
        readers = pairs.map { |near, _| Heddle.spawn { near.wait_readable(5) && 1 } }
        sleep(0.001)
        Process.setrlimit(:NOFILE, 16, 16)
        Thread.new { sleep(0.01); queue << :popped }
        pairs.first(20).each { |_, far| far.write("x") }
        found = readers.first(20).sum(&:value)
        started = Heddle::Clock.now
        sleep(0.02)
        long = Heddle::Clock.now - started >= 0.02
        pairs.each { |_, far| far.write("x") }
        puts [readers.each(&:wait).map(&:status).uniq.inspect, found, popping.value, long].join(" ")
      end
    RUBY
  end

  # Fibers that wait for different events on one descriptor share its entry.
  def test_a_wait_is_not_lost_when_another_on_its_descriptor_ends
    near, far = UNIXSocket.pair
    fill = -> { loop { near.write_nonblock("x" * 100_000) } }
    assert_raises(IO::WaitWritable, &fill)
    Heddle.run do
      reading = Array.new(3) { Heddle.spawn { near.wait_readable(5) && :readable } }
      writing = Heddle.spawn { near.wait_writable(5) && :writable }
      given_up = Heddle.spawn { near.wait(IO::READABLE | IO::WRITABLE, 0.001) || :nothing }
      assert_equal :nothing, given_up.value
      reading.pop.cancel.wait
      far.write("x")
      assert_equal [:readable] * 2, reading.map(&:value)
      assert_equal :waiting, writing.status
      far.read_nonblock(1_000_000)
      assert_equal :writable, writing.value
    end
  ensure
    [near, far].compact.each(&:close)
  end
end
