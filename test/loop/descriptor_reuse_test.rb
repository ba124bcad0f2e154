# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/wait"

runs_on also: %i[poll]

# Descriptor numbers are reused at once; the kernel's state of the old file must not be taken for the new one.
class DescriptorReuseTest < Minitest::Test
  include LoopHelpers

  def test_a_descriptor_number_reused_after_close
    Heddle.run do
      numbers = Array.new(200) do |index|
        reader, writer = UNIXSocket.pair
        waiter = Heddle.spawn { reader.readpartial(8) }
        writer.write(index.to_s)
        assert_equal index.to_s, waiter.value
        reader.close
        writer.close
        reader.inspect && writer.inspect
      end
      assert_equal 200, numbers.size
    end
  end

  def test_a_new_file_is_not_mistaken_for_the_old
    Heddle.run do
      first_reader, first_writer = UNIXSocket.pair
      number = first_reader.fileno
      first_writer.write("x")
      assert first_reader.wait_readable(5)
      first_reader.close # was readable when it was closed
      second_reader, second_writer = UNIXSocket.pair
      assert_equal number, second_reader.fileno
      refute second_reader.wait_readable(0.02)
      waiter = Heddle.spawn { second_reader.readpartial(8) }
      second_writer.write("new")
      assert_equal "new", waiter.value
    ensure
      [first_writer, second_reader, second_writer].each(&:close)
    end
  end

  # The kernel still knows the old file by the number, because a copy of it is open.
  def test_a_descriptor_number_reused_while_a_copy_of_the_old_file_is_open
    Heddle.run do
      old_reader, old_writer = UNIXSocket.pair
      number = old_reader.fileno
      refute old_reader.wait_readable(0.005)
      copy = old_reader.dup
      old_reader.close
      new_reader, new_writer = UNIXSocket.pair
      assert_equal number, new_reader.fileno

      waiter = Heddle.spawn { Fiber.scheduler.io_wait(new_reader, IO::READABLE, 0.1) }
      old_writer.write("old") # what was registered under this number fires
      assert_equal false, waiter.value

      waiter = Heddle.spawn { new_reader.readpartial(8) }
      new_writer.write("new")
      assert_equal "new", waiter.value
      assert_equal "old", copy.readpartial(8)
    ensure
      [old_writer, copy, new_reader, new_writer].each(&:close)
    end
  end

  def test_an_abandoned_wait_on_a_copy_does_not_wake_the_new_owner
    Heddle.run do
      old_reader, old_writer = UNIXSocket.pair
      copy = old_reader.dup
      waiter = Heddle.spawn { old_reader.wait_readable(10) }
      waiter.cancel.wait
      number = old_reader.fileno
      old_reader.close
      new_reader, new_writer = UNIXSocket.pair
      assert_equal number, new_reader.fileno
      waiter = Heddle.spawn { Fiber.scheduler.io_wait(new_reader, IO::READABLE, 0.1) }
      old_writer.write("old")
      assert_equal false, waiter.value
    ensure
      [copy, old_writer, new_reader, new_writer].each(&:close)
    end
  end

  # The number goes from a socket to a file, for which epoll does not wait, and back to the socket, which epoll knows.
  def test_a_descriptor_number_that_returns_to_its_first_file
    Heddle.run do
      socket, writer = UNIXSocket.pair
      copy = socket.dup
      file = File.open(__FILE__)
      refute socket.wait_readable(0.002)
      scheduler = Fiber.scheduler
      NativeCalls.dup2(file.fileno, socket.fileno)
      assert_equal IO::READABLE, scheduler.io_wait(socket, IO::READABLE, 1), "a file is always readable"
      NativeCalls.dup2(copy.fileno, socket.fileno)
      waiter = Heddle.spawn { scheduler.io_wait(socket, IO::READABLE, 5) }
      assert_equal :waiting, waiter.status
      writer.write("x")
      assert_equal IO::READABLE, waiter.value
      assert_equal "x", copy.readpartial(1)
    ensure
      [socket, writer, copy, file].each { |io| io&.close }
    end
  end

  def test_the_original_and_its_copy_at_once
    with_pair do |reader, writer|
      copy = reader.dup
      Heddle.run do
        waiters = [reader, copy].map { |io| Heddle.spawn { io.wait_readable(10) } }
        writer.write("x")
        assert_equal [reader, copy], waiters.map(&:value)
      end
    ensure
      copy&.close
    end
  end

  # dup2 puts another file under a number without any close that Ruby sees.
  def test_reopen_puts_another_file_under_the_number
    with_pair do |reader, writer|
      with_pair do |other_reader, other_writer|
        Heddle.run do
          refute reader.wait_readable(0.005)
          reader.reopen(other_reader)
          waiter = Heddle.spawn { reader.readpartial(8) }
          writer.write("old") rescue nil # rubocop:disable Style/RescueModifier
          other_writer.write("new")
          assert_equal "new", waiter.value
        end
      end
    end
  end

  # As C extensions do: another IO object for the same number at each wait.
  def test_several_io_objects_for_one_descriptor
    with_pair do |reader, writer|
      Heddle.run do
        5.times do |index|
          handle = IO.for_fd(reader.fileno, autoclose: false)
          waiter = Heddle.spawn { handle.wait_readable(10) }
          writer.write(index.to_s)
          assert waiter.value
          assert_equal index.to_s, reader.readpartial(8)
          GC.start if index == 2
        end
      end
    end
  end

  # A cancelled wait must not hold the file open in the kernel: the peer would never see the end.
  def test_the_peer_sees_the_end_of_a_socket_closed_after_a_cancelled_wait
    with_pair do |reader, writer|
      Heddle.run do
        waiter = Heddle.spawn { reader.readpartial(1) }
        waiter.cancel.wait
        reader.close
        assert_nil assert_within(2, remeasure: 0) {
          writer.wait_readable(5) && writer.read_nonblock(1, exception: false)
        }
      end
    end
  end

  def test_the_peer_sees_the_end_of_a_socket_closed_after_a_timed_out_wait
    with_pair do |reader, writer|
      Heddle.run do
        refute reader.wait_readable(0.005)
        reader.close
        assert_nil assert_within(2, remeasure: 0) {
          writer.wait_readable(5) && writer.read_nonblock(1, exception: false)
        }
      end
    end
  end
end
