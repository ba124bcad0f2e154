# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/wait"

# A C extension closes a descriptor by close(2), which notifies nobody, while a fiber waits for it; the number then
# names another file.
class ClosedBehindOurBackTest < Minitest::Test
  include LoopHelpers

  # Descriptors of earlier tests would be closed in the middle of a test, and their lower number would be reused
  # instead of the expected one.
  def setup
    GC.start
  end

  # What happens to the waiter itself: poll sees the bad number at its next call. epoll and io_uring report nothing,
  # since the kernel forgot the registration, or keeps the old file for as long as it is polled: the wait lasts until
  # its timeout or a cancel, as in a thread.
  def test_no_other_task_hangs_and_the_waiter_can_be_cancelled
    with_open_pairs(2) do |(reader, _), (other, other_writer)|
      Heddle.run do
        waiter = await_gone(reader)
        witness = Heddle.spawn { other.readpartial(5) }
        NativeCalls.close(reader.fileno)
        reader.autoclose = false
        sleep(0.01)
        other_writer.write("hello")
        assert_equal "hello", witness.value
        waiter.cancel.wait(2)
        assert_predicate waiter, :ended?
      end
    end
  end

  def test_the_waiters_timeout_still_comes
    with_open_pairs(1) do |(reader, _)|
      Heddle.run do
        waiter = await_gone(reader, 0.02)
        NativeCalls.close(reader.fileno)
        reader.autoclose = false
        assert waiter.wait(2), "the timeout did not come"
        assert_includes [nil, Errno::EBADF], waiter.value
      end
    end
  end

  # The number names another connection at once. That connection's waiter gets all of its own bytes, whatever happens
  # to the wait for the old file.
  def test_the_descriptor_number_reused_at_once
    with_open_pairs(1) do |(old, old_writer)|
      Heddle.run do
        waiter = await_gone(old)
        number = old.fileno
        NativeCalls.close(number)
        old.autoclose = false
        fresh, fresh_writer = UNIXSocket.pair
        assert_equal number, fresh.fileno
        reader = Heddle.spawn { fresh.readpartial(100) }
        sleep(0.005)
        assert_equal :waiting, reader.status, "woken by the file that had its number before"
        old_writer.write("old") rescue nil # rubocop:disable Style/RescueModifier
        sleep(0.005)
        assert_equal :waiting, reader.status, "woken by the file that had its number before"
        fresh_writer.write("new")
        assert reader.wait(2), "the new connection was not woken"
        assert_equal "new", reader.value
        waiter.cancel.wait
        fresh.close
        fresh_writer.close
      end
    end
  end

  # The old wait must not consume the kernel's events of the new file, also when it is the only one that waits.
  def test_a_stale_wait_that_ends_later_leaves_the_new_one_armed
    with_open_pairs(1) do |(old, _)|
      Heddle.run do
        stale = await_gone(old)
        NativeCalls.close(old.fileno)
        old.autoclose = false
        fresh, fresh_writer = UNIXSocket.pair
        reader = Heddle.spawn { fresh.readpartial(100) }
        stale.cancel.wait
        sleep(0.005)
        fresh_writer.write("new")
        assert reader.wait(2), "the new connection was not woken"
        assert_equal "new", reader.value
        fresh.close
        fresh_writer.close
      end
    end
  end

  def test_many_descriptor_numbers_are_reused
    Heddle.run do
      200.times do |index|
        reader, writer = UNIXSocket.pair
        stale = await_gone(reader)
        NativeCalls.close(reader.fileno)
        reader.autoclose = false
        fresh, fresh_writer = UNIXSocket.pair
        task = Heddle.spawn { fresh.readpartial(10) }
        fresh_writer.write(index.to_s)
        assert task.wait(2), "the reader of connection #{index} was not woken"
        assert_equal index.to_s, task.value
        stale.cancel.wait
        [writer, fresh, fresh_writer].each(&:close)
      end
    end
  end

  # dup2 puts another file under the number: neither close nor open.
  def test_a_file_replaced_by_dup2
    with_open_pairs(2) do |(reader, _), (other, other_writer)|
      Heddle.run do
        stale = await_gone(reader)
        NativeCalls.dup2(other.fileno, reader.fileno)
        waiter = Heddle.spawn { reader.readpartial(10) }
        other_writer.write("x")
        assert waiter.wait(2), "the file that took its place was not noticed"
        assert_equal "x", waiter.value
        stale.cancel.wait
      end
    end
  end

  private

  # poll sees the number without a file; epoll notices the change when the number is registered again.
  def await_gone(io, timeout = 10)
    Heddle.spawn do
      io.wait_readable(timeout)
    rescue Errno::EBADF => error
      error.class
    end
  end

  # Pairs of sockets, of which the block may close some numbers itself.
  def with_open_pairs(count)
    pairs = Array.new(count) { UNIXSocket.pair }
    yield(*pairs)
  ensure
    pairs.flatten.each { |io| io.close if io.autoclose? }
  end
end
