# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "support/refusals"

# Older kernels without newer features, and full kernel queues.
class OtherKernelsTest < Minitest::Test
  include LoopHelpers
  include Refusals

  # Sockets, timers, other threads, cancels and closes, some of each at once.
  MEDLEY = <<~'RUBY'
    puts(Heddle.run do
      echoes = Array.new(100) do |index|
        ours, theirs = UNIXSocket.pair
        Heddle.spawn { 5.times { theirs.write(theirs.readpartial(10)) } }
        Heddle.spawn { Array.new(5) { ours.write("#{index}") && ours.readpartial(10) }.uniq == [index.to_s] }
      end
      reader, writer = UNIXSocket.pair
      cancelled = Array.new(50) { Heddle.spawn { reader.readpartial(1) } }.each(&:cancel)
      closed = Heddle.spawn { reader.readpartial(1) rescue :closed }
      slept = Array.new(50) { |index| Heddle.spawn { sleep(index * 0.0005) && :slept } }
      queue = Thread::Queue.new
      popped = Heddle.spawn { queue.pop }
      Thread.new { sleep(0.01); queue << :popped }
      none = Heddle.spawn { IO.select([reader], nil, nil, 0.01).inspect }
      none.wait
      [reader, writer].each(&:close)
      started = Heddle::Clock.now
      sleep(0.0202)
      exact = Heddle::Clock.now - started >= 0.0202
      [echoes.map(&:value).uniq, cancelled.each(&:wait).map(&:status).uniq, closed.value, slept.map(&:value).uniq,
        popped.value, none.value, exact, Fiber.scheduler.backend].flatten.join(" ")
    end)
  RUBY
  EXPECTED = "true cancelled closed slept popped nil true"

  # Before 6.1 the kernel interrupts the thread for completions.
  def test_io_uring_before_6_1
    with_other_io_uring("IO_URING_OF" => "5.15") do |environment|
      assert_equal "#{EXPECTED} uring\n", assert_child(MEDLEY, env: environment)
    end
  end

  def test_io_uring_before_5_11_is_not_offered
    with_other_io_uring("IO_URING_OF" => "5.10") do |environment|
      assert_equal "#{EXPECTED} epoll\n", assert_child(MEDLEY, env: {**environment, "HEDDLE_BACKEND" => nil})
      outcome = in_child(MEDLEY, env: environment)
      assert_match(/HEDDLE_BACKEND=uring: this kernel refuses that backend \(Function not implemented\)/, outcome.err)
    end
  end

  # Programs bring libraries of their own in LD_LIBRARY_PATH. Any library serves as a liburing that lacks functions.
  def test_a_liburing_that_lacks_functions_is_named_as_heddle_is_loaded
    skip "this build has no io_uring" unless Heddle::Scheduler.backends.include?("uring")
    compiled("short_sends.c", "-shared", "-fPIC") do |library|
      folder = File.dirname(library)
      File.symlink(library, File.join(folder, "liburing.so.2"))
      outcome = in_child("puts 'loaded'", env: {"LD_LIBRARY_PATH" => folder})
      assert_match(/undefined symbol: io_uring.* \(LoadError\)/, outcome.err)
      assert_includes outcome.err, "LD_LIBRARY_PATH=#{folder} (" if ENV["HEDDLE_NATIVE_DIR"].to_s.empty?
      assert_empty outcome.out
    end
  end

  def test_full_queues
    with_other_io_uring("IO_URING_ENTRIES" => "2") do |environment|
      assert_equal "#{EXPECTED} uring\n", assert_child(MEDLEY, env: environment)
    end
  end

  # The poll for urgent data also reports ordinary data, and the kernel ends the poll when there is no room for one
  # more completion.
  def test_urgent_data_after_a_full_queue
    with_other_io_uring("IO_URING_ENTRIES" => "2") do |environment|
      assert_equal "true\n", assert_child(<<~RUBY, env: environment)
        require "io/wait"
        server = TCPServer.new("127.0.0.1", 0)
        client = TCPSocket.new("127.0.0.1", server.addr[1])
        connection = server.accept
        Heddle.run do
          waiter = Heddle.spawn { connection.wait_priority(5) }
          pairs = Array.new(200) { UNIXSocket.pair }
          readers = pairs.map { |reader, _| Heddle.spawn { reader.wait_readable && 1 } }
          sleep(0.002)
          pairs.each_with_index { |(_, writer), index| (index == 100 ? client : writer).send("x", 0) } # at one go
          pairs[100].last.send("x", 0)
          readers.sum(&:value)
          client.send("!", Socket::MSG_OOB)
          puts waiter.value == connection
        end
      RUBY
    end
  end

  # Before 5.11, and in containers with older filters, only whole milliseconds are possible; times are rounded up.
  def test_epoll_without_nanoseconds
    skip "this build has no epoll" unless Heddle::Scheduler.backends.include?("epoll")
    [Errno::ENOSYS, Errno::EPERM].each do |error|
      refusing(EPOLL_PWAIT2, error) do |launcher|
        out = assert_child(MEDLEY, env: {"HEDDLE_BACKEND" => "epoll"}, launcher: launcher)
        assert_equal "#{EXPECTED} epoll\n", out, error.name
      end
    end
  end
end
