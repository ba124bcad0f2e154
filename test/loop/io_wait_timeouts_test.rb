# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"

class IOWaitTimeoutsTest < Minitest::Test
  include LoopHelpers

  FOREVER = [nil, 1e6, 10**6, 1e300, 10**18, 2**62, 2**80, Float::MAX, Float::INFINITY, 3_000_000_000].freeze

  FOREVER.each do |timeout|
    define_method("test_a_timeout_of_#{timeout.inspect}_is_ended_by_data") do
      with_pair do |reader, writer|
        Heddle.run do
          waiter = Heddle.spawn { Fiber.scheduler.io_wait(reader, IO::READABLE, timeout) }
          assert_equal :waiting, waiter.status
          assert_nil waiter.wait(0.02)
          writer.write("x")
          assert_equal IO::READABLE, waiter.value
        end
      end
    end
  end

  [0.001, 0.05, 1/20r].each do |timeout|
    define_method("test_a_timeout_of_#{timeout.inspect}_ends_by_itself") do
      with_pair do |reader, _|
        Heddle.run do
          result =
            assert_within(timeout + 0.5, at_least: timeout) { Fiber.scheduler.io_wait(reader, IO::READABLE, timeout) }
          assert_equal false, result
          assert_equal 0, Fiber.scheduler.statistics[:timers]
        end
      end
    end
  end

  # Timers end in one turn of the loop, and the fibers that they make ready run one after another.
  def late_answer(waits)
    with_pair do |reader, writer|
      Heddle.run do
        writes = Heddle.spawn do
          sleep(0.02)
          writer.write("x")
        end
        waiter = Heddle.spawn { waits.call(reader) }
        busy_for(0.05)
        [writes, waiter].map(&:value).last
      end
    end
  end

  def busy_for(seconds)
    ends = monotonic + seconds
    nil while monotonic < ends
  end

  def test_data_written_just_before_the_timeout_is_found
    assert_equal IO::READABLE, late_answer(->(reader) { Fiber.scheduler.io_wait(reader, IO::READABLE, 0.025) })
    assert late_answer(->(reader) { reader.wait_readable(0.025) })
    assert_equal [1, [], []], late_answer(->(reader) { IO.select([reader], nil, nil, 0.025) })
      &.then { |readable, *rest| [readable.size, *rest] }
  end

  def test_a_timeout_of_zero_reports_readiness_correctly
    with_pair do |reader, writer|
      Heddle.run do
        [0, 0.0, 0r].each do |zero|
          assert_equal false, Fiber.scheduler.io_wait(reader, IO::READABLE, zero)
          assert_equal IO::WRITABLE, Fiber.scheduler.io_wait(reader, IO::WRITABLE, zero)
          assert_equal IO::WRITABLE, Fiber.scheduler.io_wait(reader, IO::READABLE | IO::WRITABLE, zero)
        end
        writer.write("x")
        assert_equal IO::READABLE, Fiber.scheduler.io_wait(reader, IO::READABLE, 0)
        assert_equal IO::READABLE | IO::WRITABLE, Fiber.scheduler.io_wait(reader, IO::READABLE | IO::WRITABLE, 0)
      end
    end
  end

  # What Net::HTTP asks of a persistent connection: has the server hung up?
  def test_wait_readable_zero_sees_a_hang_up
    with_pair do |reader, writer|
      Heddle.run do
        refute reader.wait_readable(0)
        writer.write("x")
        assert reader.wait_readable(0)
        reader.read_nonblock(1)
        refute reader.wait_readable(0)
        writer.close
        assert reader.wait_readable(0)
      end
    end
  end

  def test_data_that_arrived_before_the_wait_is_seen
    with_pair do |reader, writer|
      writer.write("xx")
      Heddle.run do
        3.times { assert_equal IO::READABLE, Fiber.scheduler.io_wait(reader, IO::READABLE, nil) }
        assert_equal "x", reader.read_nonblock(1)
        # Left from before, with no edge to come.
        assert_equal IO::READABLE, Fiber.scheduler.io_wait(reader, IO::READABLE, 5)
      end
    end
  end

  def test_writable_waits_until_there_is_room
    with_pair do |reader, writer|
      Heddle.run do
        written = 0
        loop { written += writer.write_nonblock("x" * 65_536) }
      rescue IO::WaitWritable
        assert_equal false, Fiber.scheduler.io_wait(writer, IO::WRITABLE, 0)
        assert_equal false, Fiber.scheduler.io_wait(writer, IO::WRITABLE, 0.01)
        waiter = Heddle.spawn { Fiber.scheduler.io_wait(writer, IO::WRITABLE, nil) }
        reader.read(written)
        assert_equal IO::WRITABLE, waiter.value
      end
    end
  end

  def test_urgent_data
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    accepted = server.accept
    Heddle.run do
      waiter = Heddle.spawn { Fiber.scheduler.io_wait(accepted, IO::PRIORITY, 5) }
      urgent = "!"
      client.send(urgent, Socket::MSG_OOB)
      assert_equal IO::PRIORITY, waiter.value
    end
  ensure
    [server, client, accepted].compact.each(&:close)
  end

  def test_the_io_methods_of_ruby_wait_with_timeouts
    with_pair do |reader, writer|
      Heddle.run do
        assert_nil assert_within(0.6, at_least: 0.02) { reader.wait_readable(0.02) }
        assert writer.wait_writable(0.02)
        waiter = Heddle.spawn { reader.wait_readable(5) }
        writer.write("x")
        assert_same reader, waiter.value
      end
    end
  end

  def test_a_peer_that_hangs_up_ends_the_wait
    with_pair do |reader, writer|
      Heddle.run do
        waiter = Heddle.spawn { reader.wait_readable(5) && reader.read_nonblock(1, exception: false) }
        writer.close
        assert_nil waiter.value
      end
    end
  end
end
