# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# A task that starts tasks must neither wait for a whole round of the others at each of them, nor keep them from their
# turns. This counts turns, not time: a turn is what a busy task does between two waits.
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

  def test_other_tasks_have_turns_beside_an_endless_spawner
    among_busy_tasks do
      before = @turns
      320.times { Heddle.spawn {} }
      assert_operator @turns - before, :>=, 4 * BUSY
    end
  end

  # Each of these tasks spawns two more before it ends, and none waits.
  def test_other_tasks_have_turns_beside_a_tree_of_tasks
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
      nil until posted # gives the others no turn: all are posted in one
      pool.wait
      poster.join
      assert_equal 20, starts.size
      assert_operator starts.last - starts.first, :<, BUSY
    end
  end

  # A connect to a UNIX socket returns once accept finds the connection; one to a TCP socket may return earlier.
  def test_an_accept_loop_among_busy_clients
    Dir.mktmpdir do |folder|
      server = UNIXServer.new("#{folder}/socket")
      clients = Array.new(40) { UNIXSocket.new("#{folder}/socket") }
      among_busy_tasks(busy_with_a_socket) do
        before = @turns
        answered = Array.new(clients.size) { Heddle.spawn(&server.accept.method(:close)) }
        assert_operator @turns - before, :<, 10 * clients.size + BUSY
        answered.each(&:value)
      end
    ensure
      [server, *clients].compact.each(&:close)
    end
  end

  # A task whose answer has arrived finishes before many more are started.
  def test_tasks_with_an_answer_finish_before_new_ones_start
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

  # With little in flight beside such waits, the loop would sleep once all are started.
  def test_tasks_start_before_others_finish_while_waits_are_long
    after_long_waits(100) do
      before = @turns
      40.times { Heddle.spawn { sleep(LONG) } }
      assert_operator @turns - before, :<, 40
    end
  end

  def test_other_tasks_have_turns_beside_an_endless_spawner_while_waits_are_long
    after_long_waits(100) do
      before = @turns
      320.times { Heddle.spawn { sleep(LONG) } }
      assert_operator @turns - before, :>=, 60
    end
  end

  private

  LONG = 0.3
  private_constant :LONG

  # Calls the block when so many tasks have waited for long, and are ready: each has a turn. One poll finds them all.
  def after_long_waits(count)
    Heddle.run do
      @turns = 0
      20.times { sleep(LONG / 10) } # the loop learns from several polls
      count.times { Heddle.spawn { sleep(LONG) && @turns += 1 } }
      until_long = monotonic + LONG + 0.05
      nil until monotonic > until_long # without a turn for the others
      polls = Fiber.scheduler.statistics[:polls]
      sleep(0) until Fiber.scheduler.statistics[:polls] > polls
      assert_operator @turns, :<, count / 2
      yield
    end
  end

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
