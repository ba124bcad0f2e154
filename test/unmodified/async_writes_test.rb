# frozen_string_literal: true

require "test_helper"
require "support/async_loops"
require "socket"

# A socket's write in a task of Async's, where tasks work for long between two waits: the other ready tasks work first,
# so that what all of them write leaves together.
class AsyncWritesTest < Minitest::Test
  mode :fiber

  # Longer than what makes a turn a long one.
  WORK = 0.002

  def setup
    skip "this Ruby hides what tells whether a write is an ordinary one" if ruby_at_least?("4.1")
    @events = []
    @near, @far = UNIXSocket.pair
  end

  def teardown
    [@near, @far].compact.each(&:close)
  end

  def test_ready_tasks_work_first
    on_heddle do |task|
      ready(task) { @events << :worked }
      writer = task.async { work && @near.write("answer") && @events << :wrote }
      writer.wait
      assert_equal %i[worked wrote], @events
      assert_equal "answer", @far.readpartial(100)
    end
  end

  def test_a_task_of_heddles_does_not_wait
    Heddle.run do
      Heddle.spawn { sleep(0) && @events << :worked }
      Heddle.spawn { work && @near.write("answer") && @events << :wrote }.value
    end
    assert_equal %i[wrote worked], @events
  end

  def test_the_bytes_are_those_of_the_call
    on_heddle do |task|
      text = +"before"
      ready(task) { text.replace("after!") }
      task.async { work && @near.write(text) }.wait
      assert_equal "before", @far.readpartial(100)
    end
  end

  def test_a_socket_that_is_closed_meanwhile
    on_heddle do |task|
      ready(task) { @near.close }
      writer = task.async do
        work && @near.write("answer")
      rescue => error
        error
      end
      assert_kind_of IOError, writer.wait
      assert_equal "", @far.read
    end
  end

  def test_a_task_that_is_stopped_meanwhile_has_sent_nothing
    on_heddle do |task|
      writer = nil
      ready(task) { writer.stop }
      writer = task.async do |itself|
        writer = itself
        work && @near.write("answer")
      ensure
        @events << :ended
      end
      writer.wait
      assert_equal [:ended], @events
      assert_equal :wait_readable, @far.read_nonblock(100, exception: false)
    end
  end

  # What a deadline or a stop leaves pending is raised by the next wait, as after any other write.
  def test_a_stop_that_is_put_off_lets_the_write_through
    on_heddle do |task|
      writer = nil
      ready(task) { writer.stop }
      writer = task.async do |itself|
        writer = itself
        itself.defer_stop { work && @near.write("answer") }
      end
      writer.wait
      assert_equal "answer", @far.readpartial(100)
    end
  end

  private

  # On both loops of Heddle's, each with a socket pair of its own.
  def on_heddle(&block)
    %i[top run].each do |loop|
      teardown
      @near, @far = UNIXSocket.pair
      @events.clear
      AsyncLoops.run(loop, &block)
    end
  end

  # A task that is ready, and has not run the block yet.
  def ready(task)
    task.async do |itself|
      itself.yield
      yield
    end
  end

  def work
    stop = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WORK
    true until Process.clock_gettime(Process::CLOCK_MONOTONIC) > stop
    true
  end
end
