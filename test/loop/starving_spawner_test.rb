# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# Whoever starts tasks must not wait for a whole round of the others at each of them, nor keep them from their turns.
# Turns are counted, not time: one is what a busy task does between two waits.
class StarvingSpawnerTest < Minitest::Test
  include LoopHelpers

  BUSY = 100

  def test_spawns_among_busy_tasks_cost_less_than_a_round
    among_busy_tasks do
      started = 0
      before = @turns
      10.times { Heddle.spawn { started += 1 } }
      assert_equal 10, started
      assert_operator @turns - before, :<, BUSY
    end
  end

  def test_fibers_scheduled_among_busy_tasks_cost_less_than_a_round
    among_busy_tasks do
      started = 0
      before = @turns
      10.times { Fiber.schedule { (started += 1) && sleep(0) } }
      assert_equal 10, started
      assert_operator @turns - before, :<, BUSY
    end
  end

  def test_the_others_have_their_turns_beside_a_task_that_spawns_without_end
    among_busy_tasks do
      before = @turns
      320.times { Heddle.spawn {} }
      assert_operator @turns - before, :>=, 4 * BUSY
    end
  end

  # Each of these spawns two more before it ends, and none waits.
  def test_the_others_have_their_turns_beside_a_tree_of_tasks
    among_busy_tasks do
      before = @turns
      grow(10)
      assert_operator @turns - before, :>=, BUSY
    end
  end

  def test_tasks_that_another_thread_posts_start_together
    among_busy_tasks do
      pool = Heddle::FiberPool.new(100)
      starts = []
      posted = false
      poster = Thread.new do
        20.times { pool.spawn { starts << @turns } }
        posted = true
      end
      nil until posted # without a turn for the others: all are posted in one
      pool.wait
      poster.join
      assert_equal 20, starts.size
      assert_operator starts.last - starts.first, :<, BUSY
    end
  end

  def test_an_accept_loop_among_busy_clients
    server = TCPServer.new("127.0.0.1", 0)
    clients = Array.new(40) { TCPSocket.new("127.0.0.1", server.local_address.ip_port) }
    among_busy_tasks(busy_with_a_socket) do
      before = @turns
      answered = Array.new(clients.size) { Heddle.spawn(&server.accept.method(:close)) }
      assert_operator @turns - before, :<, 10 * clients.size + BUSY
      answered.each(&:value)
    end
  ensure
    [server, *clients].compact.each(&:close)
  end

  # A task whose answer is there comes to its end before many more are started.
  def test_what_is_in_flight_finishes_before_more_is_started
    in_flight = most = 0
    Heddle.run do
      500.times do
        Heddle.spawn do
          most = [most, in_flight += 1].max
          with_pair do |reader, writer|
            writer.write("x")
            reader.wait_readable
            reader.readpartial(1)
          end
          in_flight -= 1
        end
      end
    end
    assert_operator most, :<=, 32
  end

  private

  def grow(depth)
    2.times { Heddle.spawn { grow(depth - 1) } } if depth > 0
  end

  def busy_with_a_socket
    lambda do
      near, far = Thread.current[:pair] ||= UNIXSocket.pair
      near.write("x")
      far.wait_readable
      far.readpartial(1)
    end
  end

  def among_busy_tasks(work = -> { sleep(0) })
    Heddle.run do
      @turns = 0
      stop = false
      busy = Array.new(BUSY) do
        Heddle.spawn { work.call && @turns += 1 until stop }
      end
      sleep(0)
      yield
      stop = true
      busy.each(&:wait)
    end
  end
end
