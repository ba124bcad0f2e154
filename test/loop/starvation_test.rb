# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A fiber that is always ready must not keep the others from descriptors and timers.
class StarvationTest < Minitest::Test
  include LoopHelpers

  NOTHING = File.open(File::NULL, "w")
  ZERO = File.open("/dev/zero")
  SOURCE, SINK = IO.pipe
  BUSY = {
    sleep_0: -> { sleep(0) },
    kernel_sleep_0: -> { Fiber.scheduler.kernel_sleep(0) },
    spawning: -> { Heddle.spawn { sleep(0) } && sleep(0) },
    ready_reads: -> { ZERO.readpartial(1) },
    ready_waits: -> { Fiber.scheduler.io_wait(SINK, IO::WRITABLE, nil) },
    ready_writes: -> { NOTHING.syswrite("x") },
    zero_timeouts: -> { IO.select([SOURCE], nil, nil, 0) },
    queue_handed_around: -> { Thread::Queue.new.tap { |queue| Heddle.spawn { queue << 1 } }.pop }
  }.freeze

  BUSY.each do |name, busy|
    define_method("test_a_timer_beside_#{name}") do
      beside(busy) { assert_within(1, at_least: 0.02) { sleep(0.02) } }
    end

    define_method("test_a_descriptor_beside_#{name}") do
      with_pair do |reader, writer|
        beside(busy) do
          waiter = Heddle.spawn { reader.readpartial(1) }
          # Not from a thread: it would get the GVL only every tenth of a second.
          Heddle.spawn { sleep(0.01) && writer.write("x") }
          assert_equal "x", assert_within(2, remeasure: 0) { waiter.value }
        end
      end
    end

    define_method("test_another_thread_beside_#{name}") do
      beside(busy) { assert_equal 1, assert_within(2) { Thread.new { 1 }.value } }
    end
  end

  def test_a_socket_whose_data_is_always_there
    with_pair do |reader, writer|
      with_pair do |other_reader, other_writer|
        Heddle.run do
          stop = false
          ping = Heddle.spawn do
            until stop
              writer.write("x" * 1000)
              reader.readpartial(1000)
            end
          end
          waiter = Heddle.spawn { other_reader.readpartial(1) }
          timer = Heddle.spawn { sleep(0.01) && :timer }
          other_writer.write("y")
          assert_equal ["y", :timer], assert_within(2, remeasure: 0) { [waiter.value, timer.value] }
          stop = true
          ping.wait
        end
      end
    end
  end

  private

  def beside(busy)
    Heddle.run do
      stop = false
      task = Heddle.spawn { busy.call until stop }
      yield
      stop = true
      task.value
    end
  end
end
