# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

runs_on also: %i[poll], except: %i[portable]

# Task.interrupt_at_hang_up: a task is interrupted when the peer of a socket leaves, whatever it waits for.
class HangUpTest < Minitest::Test
  include LoopHelpers

  Left = Class.new(StandardError)

  def setup
    skip "without POLLRDHUP the next write notices a peer that has closed" if portable_build?
  end

  WAYS = {
    closes: :close.to_proc,
    shuts_down: :close_write.to_proc,
    resets: lambda do |peer|
      peer.setsockopt(Socket::Option.linger(true, 0))
      peer.close
    end
  }.freeze
  WAITS = {
    sleep: -> { sleep },
    sleep_for: -> { sleep(1000) },
    queue: -> { Thread::Queue.new.pop },
    full_queue: -> { 2.times.inject(Thread::SizedQueue.new(1)) { |queue, _| queue << 1 } },
    mutex: -> { Thread::Mutex.new.then { |mutex| mutex.synchronize { mutex.sleep } } },
    task: -> { Heddle.spawn { sleep(0.2) }.wait },
    other_socket: -> { UNIXSocket.pair.then { |one, _other| one.readpartial(1) } },
    select: -> { UNIXSocket.pair.then { |pair| IO.select(pair) } },
    resumed_fiber: -> { Fiber.new { sleep }.resume },
    offload: -> { Heddle.offload { sleep(0.02) } && sleep }
  }.freeze

  WAYS.each do |name, leave|
    define_method("test_a_peer_that_#{name}") do
      Heddle.run do
        with_tcp do |socket, peer|
          task = watching(socket) { sleep }
          leave.call(peer)
          assert_equal :left, task.value
        end
      end
    end

    define_method("test_a_peer_that_#{name}_before") do
      with_tcp do |socket, peer|
        leave.call(peer)
        Heddle.run { assert_equal :left, watching(socket) { sleep }.value }
      end
    end
  end

  WAITS.each do |name, wait|
    define_method("test_a_task_that_waits_in_#{name}") do
      Heddle.run do
        with_tcp do |socket, peer|
          task = watching(socket, &wait)
          sleep(0.001)
          peer.close
          assert_equal :left, task.value
        end
      end
    end
  end

  def test_a_unix_socket
    Heddle.run do
      with_pair do |socket, peer|
        task = watching(socket) { sleep }
        peer.close
        assert_equal :left, task.value
      end
    end
  end

  # The peer sends, and nobody reads.
  def test_unread_bytes_are_no_hang_up
    Heddle.run do
      with_tcp do |socket, peer|
        task = watching(socket) { sleep(0.05) && :stayed }
        3.times { peer.write("x") && sleep(0.01) }
        assert_equal :stayed, task.value
        task = watching(socket) { sleep }
        peer.close
        assert_equal [:left, "xxx"], [task.value, socket.read]
      end
    end
  end

  def test_the_value_of_the_block
    Heddle.run do
      with_tcp { |socket, _| assert_equal :mine, Heddle::Task.interrupt_at_hang_up(socket, Left.new) { :mine } }
    end
  end

  def test_an_error_of_the_block
    Heddle.run do
      with_tcp do |socket, _|
        assert_raises(KeyError) do
          Heddle::Task.interrupt_at_hang_up(socket, Left.new) { sleep(0.001) && raise(KeyError) }
        end
      end
    end
  end

  # The hang-up is found while the task has something else to do.
  def test_nothing_is_raised_after_the_block
    Heddle.run do
      with_tcp do |socket, peer|
        Heddle::Task.interrupt_at_hang_up(socket, Left.new) do
          Heddle.shield(5) do
            peer.close
            sleep(0.05)
          end
        end
        sleep(0.001)
      end
    end
  end

  def test_a_shield_comes_first
    Heddle.run do
      with_tcp do |socket, peer|
        steps = []
        task = watching(socket) do
          Heddle.shield(5) { sleep(0.05) && steps << :shielded }
          sleep
        end
        peer.close
        assert_equal [:left, [:shielded]], [task.value, steps]
      end
    end
  end

  def test_it_is_raised_once
    Heddle.run do
      with_tcp do |socket, peer|
        task = watching(socket) do
          sleep
        ensure
          sleep(0.01)
        end
        peer.close
        assert_equal :left, task.value
      end
    end
  end

  def test_a_cancel_comes_first
    Heddle.run do
      with_tcp do |socket, peer|
        task = watching(socket) { sleep }
        peer.close
        task.cancel.wait
        assert_equal :cancelled, task.status
      end
    end
  end

  def test_a_deadline_inside
    Heddle.run do
      with_tcp do |socket, peer|
        task = watching(socket) do
          Heddle.deadline(0.01) { sleep }
        rescue Heddle::DeadlineExceeded
          sleep
        end
        sleep(0.03)
        peer.close
        assert_equal :left, task.value
      end
    end
  end

  # All of them watch, and read from and write to, the same socket.
  def test_beside_other_waits_for_the_socket
    Heddle.run do
      with_tcp do |socket, peer|
        watchers = Array.new(2) { watching(socket) { sleep } }
        reader = Heddle.spawn { socket.read }
        writer = Heddle.spawn do
          socket.write("x" * (32 << 20))
        rescue SystemCallError => error
          error.class
        end
        peer.write("read")
        100.times { peer.readpartial(65_536) }
        peer.setsockopt(Socket::Option.linger(true, 0))
        peer.close
        assert_equal %i[left left], watchers.map(&:value)
        assert_includes [Errno::EPIPE, Errno::ECONNRESET], writer.value
        assert_equal "read", reader.value
      rescue Errno::ECONNRESET
        nil # what the reader met
      end
    end
  end

  # The hang-up is there all the time, and the peer does not read.
  def test_a_wait_for_writing_sleeps_when_the_peer_shuts_down
    Heddle.run do
      with_tcp do |socket, peer|
        writer = Heddle.spawn { socket.write("x" * (32 << 20)) }
        peer.close_write
        sleep(0.01)
        before = Fiber.scheduler.statistics[:polls]
        sleep(0.05)
        assert_operator Fiber.scheduler.statistics[:polls] - before, :<, 20
        reading = in_background { peer.read }
        assert_equal 32 << 20, writer.value
        socket.close
        assert_equal 32 << 20, reading.value.bytesize
      end
    end
  end

  def test_a_kill_comes_first
    skip "needs Ruby 3.3" unless Fiber.method_defined?(:kill)

    Heddle.run do
      with_tcp do |socket, peer|
        fiber, left = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          Heddle::Task.interrupt_at_hang_up(socket, Left.new) do
            Heddle.shield(5) do
              peer.close
              sleep(0.05)
            end
          end
          left = sleep(0.001)
        end
        sleep(0.02)
        fiber.kill
        task.wait
        assert_equal [:cancelled, nil], [task.status, left]
      end
    end
  end

  def test_a_killed_task_cleans_up_when_the_peer_has_left
    skip "needs Ruby 3.3" unless Fiber.method_defined?(:kill)

    assert_cleans_up { |_, fiber| fiber.kill }
  end

  def test_a_cancelled_task_cleans_up_when_the_peer_has_left
    assert_cleans_up { |task, _| task.cancel }
  end

  # The peer learns of it while the block goes on.
  def test_a_socket_that_the_block_closes
    Heddle.run do
      with_tcp do |socket, peer|
        Heddle::Task.interrupt_at_hang_up(socket, Left.new) do
          sleep(0.001)
          socket.close
          Heddle.deadline(5) { assert_empty peer.read }
        end
      end
    end
  end

  # The same number is another file's then.
  def test_a_socket_that_is_closed_on_this_side
    Heddle.run do
      with_tcp do |socket, peer|
        task = watching(socket) { sleep(0.05) && :stayed }
        socket.close
        with_tcp do |_, other|
          other.close
          assert_equal :stayed, task.value
        end
        peer.read
      end
    end
  end

  # The next one on the same number.
  def test_one_socket_after_the_other
    Heddle.run do
      20.times do
        with_tcp do |socket, peer|
          assert_equal :stayed, watching(socket) { sleep(0.001) && :stayed }.value
          task = watching(socket) { sleep }
          peer.close
          assert_equal :left, task.value
        end
      end
    end
  end

  def test_many_tasks
    Heddle.run do
      pairs = Array.new(200) { UNIXSocket.pair }
      tasks = pairs.map { |socket, _| watching(socket) { sleep } }
      waiting = Heddle.spawn { sleep(0.02) && :others_stay }
      pairs.each { |_, peer| peer.close }
      assert_equal [:left] * 200, tasks.map(&:value)
      assert_equal :others_stay, waiting.value
    ensure
      pairs&.flatten&.each(&:close)
    end
  end

  # A hang-up may still come: the tasks do not wait for ever.
  def test_no_deadlock_is_reported
    Heddle.run do
      with_tcp do |socket, peer|
        in_background { sleep(0.05) && peer.close }
        assert_raises(Left) { Heddle::Task.interrupt_at_hang_up(socket, Left.new) { Thread::Queue.new.pop } }
      end
    end
  end

  # What a regular file is waited for is there at once, and says nothing of a peer.
  def test_a_file
    Heddle.run do
      File.open(__FILE__) { |file| assert_equal :stayed, watching(file) { sleep(0.01) && :stayed }.value }
    end
  end

  def test_outside_of_tasks
    with_tcp do |socket, peer|
      peer.close
      assert_equal :stayed, Heddle::Task.interrupt_at_hang_up(socket, Left.new) { sleep(0.01) && :stayed }
    end
  end

  def test_a_closed_socket_and_no_exception
    with_tcp do |socket, _|
      assert_raises(TypeError) { Heddle::Task.interrupt_at_hang_up(socket, "left") { nil } }
      socket.close
      assert_raises(IOError) { Heddle::Task.interrupt_at_hang_up(socket, Left.new) { nil } }
    end
  end

  def test_a_child_of_fork
    out = assert_child(<<~RUBY)
      Heddle.run do
        socket, peer = UNIXSocket.pair
        Heddle::Task.interrupt_at_hang_up(socket, IOError.new("left")) do
          pid = fork { puts "child" }
          Process.wait(pid)
          puts $?.success?
          peer.close
          sleep
        rescue IOError => error
          puts error.message
        end
      end
    RUBY
    assert_equal "child\ntrue\nleft\n", out
  end

  private

  # The block ends a task, whose clean-up waits; meanwhile the peer leaves.
  def assert_cleans_up
    Heddle.run do
      with_tcp do |socket, peer|
        fiber, cleaned = nil
        task = watching(socket) do
          fiber = Fiber.current
          sleep
        ensure
          peer.close
          cleaned = sleep(0.02)
        end
        sleep(0.001)
        yield task, fiber
        task.wait
        assert_equal [:cancelled, true], [task.status, !cleaned.nil?]
      end
    end
  end

  # @return [Heddle::Task] whose value is :left if it was interrupted
  def watching(socket, &block)
    Heddle.spawn do
      Heddle::Task.interrupt_at_hang_up(socket, Left.new, &block)
    rescue Left
      :left
    end
  end

  def with_tcp
    server = TCPServer.new("127.0.0.1", 0)
    peer = TCPSocket.new("127.0.0.1", server.local_address.ip_port)
    yield server.accept, peer
  ensure
    [server, peer].compact.each(&:close)
  end
end
