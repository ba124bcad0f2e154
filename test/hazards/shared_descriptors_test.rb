# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"

# One open file with several numbers, in several threads, in several processes.
class SharedDescriptorsTest < Minitest::Test
  include LoopHelpers

  def test_a_copy_is_closed_while_the_original_is_awaited
    with_pair do |reader, writer|
      Heddle.run do
        copy = reader.dup
        waiter = Heddle.spawn { reader.readpartial(10) }
        copy.close
        writer.write("x")
        assert waiter.wait(2), "closing the copy ended the wait on the original"
        assert_equal "x", waiter.value
      end
    end
  end

  def test_the_original_is_closed_while_its_copy_is_awaited
    with_pair do |reader, writer|
      Heddle.run do
        copy = reader.dup
        waiter = Heddle.spawn { copy.readpartial(10) }
        refused = Heddle.spawn { assert_raises(IOError) { reader.readpartial(10) } }
        reader.close
        assert refused.wait(2), "the closed original is still awaited"
        assert_equal :waiting, waiter.status
        writer.write("x")
        assert_equal "x", waiter.value
        copy.close
      end
    end
  end

  def test_closed_by_another_thread_under_many_waiters
    with_pair do |reader, _|
      Heddle.run do
        waiters = Array.new(20) { Heddle.spawn { assert_raises(IOError) { reader.readpartial(10) } } }
        Thread.new { reader.close }.join
        waiters.each { |waiter| assert waiter.wait(2), "a fiber still waits for the closed descriptor" }
      end
    end
  end

  # While both loops sleep in the kernel.
  def test_closed_by_another_thread_under_two_loops
    with_pair do |reader, _|
      waiting = Thread::Queue.new
      threads = Array.new(2) do
        Thread.new do
          Heddle.run do
            task = Heddle.spawn { assert_raises(IOError) { reader.readpartial(10) } }
            waiting << true
            task.value
          end
        end
      end
      2.times { waiting.pop }
      wait_until { threads.all? { |thread| thread.status == "sleep" } }
      reader.close
      threads.each { |thread| assert thread.join(stretched(5)), "a loop still waits for the closed descriptor" }
    end
  end

  # A child that inherits the descriptor keeps the file open: the kernel still reports its events after we closed it.
  def test_shared_with_a_child_that_keeps_it_open
    with_pair do |reader, writer|
      Heddle.run do
        refute reader.wait_readable(0.002) # registered
        go, gone = IO.pipe
        pid = fork do
          gone.close
          go.read
          exit!(0)
        end
        go.close
        number = reader.fileno
        reader.close
        fresh, fresh_writer = UNIXSocket.pair
        assert_equal number, fresh.fileno
        waiter = Heddle.spawn { fresh.readpartial(10) }
        writer.write("unread")
        sleep(0.01)
        assert_equal :waiting, waiter.status, "woken by a file that was closed"
        fresh_writer.write("new")
        assert_equal "new", waiter.value
        gone.close
        Process.wait(pid)
        assert_predicate $?, :success?
      ensure
        [fresh, fresh_writer].each { |io| io&.close }
      end
    end
  end

  # Both processes wait for one socket; each byte goes to one of them, and neither hangs.
  def test_parent_and_child_wait_for_one_socket
    with_pair do |reader, writer|
      out, into = IO.pipe
      Heddle.run do
        pid = fork do
          out.close
          into.write(Heddle.run { reader.readpartial(1) })
          exit!(0)
        end
        into.close
        mine = Heddle.spawn { reader.readpartial(1) }
        2.times do
          writer.write("x")
          sleep(0.02)
        end
        assert mine.wait(5), "the parent's fiber was not woken"
        assert_equal "x", mine.value
        assert_equal "x", out.read
        Process.wait(pid)
      end
      out.close
    end
  end
end
