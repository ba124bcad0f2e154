# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"

runs_on also: %i[poll]

class TwoFibersOnOneDescriptorTest < Minitest::Test
  include LoopHelpers

  def test_two_readers_are_both_woken
    with_pair do |reader, writer|
      Heddle.run do
        waiters = Array.new(3) { Heddle.spawn { reader.wait_readable(10) } }
        assert_equal [:waiting] * 3, waiters.map(&:status)
        writer.write("x")
        assert_equal [reader] * 3, waiters.map(&:value)
      end
    end
  end

  def test_two_readers_get_each_byte_once
    with_pair do |reader, writer|
      Heddle.run do
        readers = Array.new(10) { Heddle.spawn { reader.readpartial(1) } }
        "abcdefghij".each_char do |character|
          writer.write(character)
          sleep(0.001)
        end
        assert_equal "abcdefghij".chars, readers.map(&:value).sort
      end
    end
  end

  # The buffers are full both ways: each fiber's wait must survive the readiness of the other direction.
  def test_opposite_directions
    with_pair do |here, there|
      Heddle.run do
        bytes = 2_000_000
        sent = [here, there].map { |socket| Heddle.spawn { socket.write("x" * bytes) } }
        got = [here, there].map { |socket| Heddle.spawn { socket.read(bytes).size } }
        assert_equal [bytes] * 4, (sent + got).map(&:value)
      end
    end
  end

  def test_the_reader_still_waits_when_the_writer_may_write
    with_pair do |here, there|
      Heddle.run do
        fill(here)
        reader = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::READABLE, nil) }
        writer = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::WRITABLE, nil) }
        drain(there)
        assert_equal IO::WRITABLE, writer.value
        assert_equal :waiting, reader.status
        there.write("x")
        assert_equal IO::READABLE, reader.value
      end
    end
  end

  def test_the_writer_still_waits_when_the_reader_may_read
    with_pair do |here, there|
      Heddle.run do
        fill(here)
        writer = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::WRITABLE, nil) }
        reader = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::READABLE, nil) }
        there.write("x")
        assert_equal IO::READABLE, reader.value
        assert_equal :waiting, writer.status
        drain(there)
        assert_equal IO::WRITABLE, writer.value
      end
    end
  end

  def test_both_directions_in_one_wait_beside_a_reader
    with_pair do |here, there|
      Heddle.run do
        fill(here)
        reader = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::READABLE, nil) }
        both = Heddle.spawn { Fiber.scheduler.io_wait(here, IO::READABLE | IO::WRITABLE, nil) }
        drain(there)
        assert_equal IO::WRITABLE, both.value
        assert_equal :waiting, reader.status
        there.write("x")
        assert_equal IO::READABLE, reader.value
      end
    end
  end

  def test_one_waiter_is_cancelled_and_the_other_still_waits
    with_pair do |reader, writer|
      Heddle.run do
        first, second, third = Array.new(3) { Heddle.spawn { reader.wait_readable(10) } }
        second.cancel.wait
        writer.write("x")
        assert_equal [:cancelled, reader, reader], [second.status, first.value, third.value]
      end
    end
  end

  def test_one_waiter_times_out_and_the_other_still_waits
    with_pair do |reader, writer|
      Heddle.run do
        patient = Heddle.spawn { reader.wait_readable(10) }
        assert_nil reader.wait_readable(0.01)
        writer.write("x")
        assert_same reader, patient.value
      end
    end
  end

  def test_two_threads_with_a_loop_each
    with_pair do |reader, writer|
      threads = Array.new(2) { Thread.new { Heddle.run { reader.wait_readable(10) } } }
      wait_until { threads.all? { |thread| thread.status == "sleep" } }
      writer.write("x")
      assert_equal [reader] * 2, threads.map(&:value)
    end
  end

  private

  def fill(socket)
    loop { socket.write_nonblock("x" * 65_536) }
  rescue IO::WaitWritable
    nil
  end

  def drain(socket)
    loop { socket.read_nonblock(65_536) }
  rescue IO::WaitReadable
    nil
  end
end
