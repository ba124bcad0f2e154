# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/native_calls"
require "io/wait"

runs_on also: %i[poll]

# An IO that is closed while a fiber waits for it: the wait ends in IOError, as in a thread.
class CloseWhileWaitingTest < Minitest::Test
  include LoopHelpers

  def test_closed_by_another_task
    with_pair do |reader, writer|
      Heddle.run do
        waiter = Heddle.spawn { assert_raises(IOError) { reader.readpartial(1) } }
        reader.close
        assert waiter.wait(2), "the reader still waits"
        assert_kind_of IOError, waiter.value
      end
    end
  end

  def test_closed_by_another_thread
    with_pair do |reader, writer|
      Heddle.run do
        waiter = Heddle.spawn { assert_raises(IOError) { reader.readpartial(1) } }
        Thread.new { reader.close }.join
        assert waiter.wait(2), "the reader still waits"
      end
    end
  end

  def test_an_accept_whose_server_is_closed
    server = TCPServer.new("127.0.0.1", 0)
    Heddle.run do
      waiter = Heddle.spawn { assert_raises(IOError) { server.accept } }
      server.close
      assert waiter.wait(2), "the accept still waits"
    end
  end

  def test_the_peer_sees_the_end
    with_pair do |reader, writer|
      Heddle.run do
        Heddle.spawn { assert_raises(IOError) { reader.readpartial(1) } }
        reader.close
        assert_within(2, remeasure: 0) { assert_nil writer.read(1) }
      end
    end
  end

  # Before the closing task does anything else, such as a request on another connection.
  def test_the_peer_sees_the_end_of_an_interrupted_wait_at_once
    waits = {
      timeout: proc { |reader| assert_nil reader.wait_readable(0.001) },
      deadline: proc { |reader|
        assert_raises(Heddle::DeadlineExceeded) { Heddle.deadline(0.001) { reader.readpartial(1) } }
      },
      cancel: proc { |reader| Heddle.spawn { reader.readpartial(1) }.tap(&:cancel).wait(2) }
    }
    waits.each do |name, wait|
      with_pair do |reader, writer|
        Heddle.run do
          instance_exec(reader, &wait)
          reader.close
          assert_nil writer.read_nonblock(1, exception: false), name
        end
      end
    end
  end

  def test_other_waiters_are_not_disturbed
    with_pair do |reader, writer|
      with_pair do |other_reader, other_writer|
        Heddle.run do
          Heddle.spawn { assert_raises(IOError) { reader.readpartial(1) } }
          other = Heddle.spawn { other_reader.readpartial(1) }
          reader.close
          sleep(0.001)
          assert_equal :waiting, other.status
          other_writer.write("x")
          assert_equal "x", other.value
        end
      end
    end
  end

  # The loop sleeps meanwhile.
  CLOSES = -> { 50.times { IO.pipe.each(&:close) && sleep(0.001) } }

  def test_a_loop_that_waits_for_something_else_sleeps_on
    assert_operator(polls_beside { Thread.new(&CLOSES).join }, :<, 20)
  end

  # Without Ruby's fork, whose child leaves the parent's loops.
  def test_a_loop_of_the_parent_sleeps_on
    skip "Ruby 3.1's threads need their timer thread" if RUBY_VERSION < "3.2"

    beside = polls_beside do
      pid = NativeCalls.fork
      if pid == 0
        CLOSES.call
        Process.exit!(0)
      end
      assert_predicate Process.wait2(pid).last, :success?
    end
    assert_operator beside, :<, 20
  end

  def test_a_closed_io_is_refused_at_once
    with_pair do |reader, _|
      reader.close
      Heddle.run do
        assert_raises(IOError) { Fiber.scheduler.io_wait(reader, IO::READABLE, 1) }
        assert_raises(IOError) { reader.wait_readable(1) }
        assert_raises(IOError) { IO.select([reader], nil, nil, 1) }
      end
    end
  end

  # Closed where Ruby does not see it.
  def test_an_unused_descriptor_number_is_refused_at_once
    with_pair do |reader, _|
      Heddle.run do
        sleep(0) # the loop has its own descriptors
        ghost = IO.for_fd(reader.fileno, autoclose: false)
        reader.close
        assert_raises(Errno::EBADF) { Fiber.scheduler.io_wait(ghost, IO::READABLE, 1) }
        assert_raises(Errno::EBADF) { Fiber.scheduler.io_wait(ghost, IO::WRITABLE, 1) }
        assert_raises(Errno::EBADF) { Fiber.scheduler.io_wait(ghost, IO::READABLE, 0) }
      end
    end
  end

  private

  # How often a loop in another thread polls while the block runs.
  def polls_beside
    with_pair do |reader, writer|
      loops = Thread::Queue.new
      thread = Thread.new do
        Heddle.run do
          loops << Fiber.scheduler
          reader.readpartial(1)
        end
      end
      scheduler = loops.pop
      wait_until { thread.stop? }
      before = scheduler.statistics[:polls]
      yield
      scheduler.statistics[:polls] - before
    ensure
      writer.write("x")
      thread.join
    end
  end
end
