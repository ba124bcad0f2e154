# frozen_string_literal: true

require "test_helper"
require "etc"
require "support/loop_helpers"
require "support/native_calls"
require "support/refusals"

# A fiber that waits for bytes may be cancelled, killed, collected: nothing may write into its memory afterwards. The
# kernel never gets an address to keep (doc/adr/0002-the-ring-carries-polls-only.md), and no sanitizer would see its
# write.
class NothingInFlightTest < Minitest::Test
  include LoopHelpers
  include Refusals

  PAGE = Etc.sysconf(Etc::SC_PAGESIZE) # 64 KiB on some kernels for arm64

  # What ends a read in the middle, given the task and its fiber.
  ENDS = {
    "cancel" => ->(task, _) { task.cancel },
    "fiber_raise" => ->(_, fiber) { fiber.raise(IOError, "interrupted") },
    "fiber_interrupt" => ->(_, fiber) { Fiber.scheduler.fiber_interrupt(fiber, IOError.new("interrupted")) },
    "timeout" => ->(task, _) { task.wait } # its own is over first
  }.freeze

  # The buffer has three pages: the first, which may be used; the one that is read into, which nobody may touch once
  # the fiber is gone; and a neighbour.
  ENDS.each do |name, interrupt|
    define_method("test_a_buffer_after_a_#{name}") do
      assert_untouched do |reader, buffer|
        fiber = nil
        task = Heddle.spawn do
          fiber = Fiber.current
          Timeout.timeout((name == "timeout") ? 0.01 : 60) { read_some(reader, buffer) }
        end
        interrupt.call(task, fiber)
        assert task.wait(5), "the read did not end"
        begin
          task.value
        rescue Heddle::TaskCancelled, IOError, Timeout::Error
          nil
        end
      end
    end
  end

  # The whole loop goes, with its thread, while the read waits.
  def test_a_buffer_after_the_end_of_its_thread
    assert_untouched do |reader, buffer|
      thread = Thread.new { Heddle.run { read_some(reader, buffer) } }
      wait_until { thread.status == "sleep" }
      thread.kill.join
      GC.start
    end
  end

  # A socket is closed under its reader, and another file gets its number.
  def test_a_buffer_after_a_close
    assert_untouched do |reader, buffer|
      copy = reader.dup
      task = Heddle.spawn { assert_raises(IOError) { read_some(copy, buffer) } }
      copy.close
      assert task.wait(5), "the read did not end"
    end
  end

  # Everything that is handed to io_uring, in a kernel that is told to refuse everything but polls.
  def test_the_ring_carries_polls_only
    watching_the_ring do |environment, log|
      assert_equal "right\n", assert_child(<<~'RUBY', env: environment)
        require "heddle/net_http"
        require "tempfile"
        require "timeout"
        require "io/wait"
        server = TCPServer.new("127.0.0.1", 0)
        port = server.addr[1]
        Heddle.run do
          serving = Heddle.spawn do
            while (client = server.accept)
              Heddle.spawn do
                nil until client.gets == "\r\n"
                client.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n", "x" * 1_000_000)
              ensure
                client.close
              end
            end
          end
          pages = Array.new(5) { Heddle.spawn { Net::HTTP.get(URI("http://localhost:#{port}/")).bytesize } }
          pages << Heddle.spawn do
            stream = Heddle::Stream.connect("127.0.0.1", port, timeout: 5)
            stream.write("GET / HTTP/1.0\r\n\r\n")
            stream.flush
            stream.read.split("\r\n\r\n").last.bytesize
          end
          raise pages.map(&:value).inspect unless pages.map(&:value).uniq == [1_000_000]

          reader, writer = UNIXSocket.pair
          kinds = {
            gets: -> { reader.gets }, read: -> { reader.read(5) }, readpartial: -> { reader.readpartial(5) },
            recv: -> { reader.recv(5) },
            recvmsg: -> { reader.recvmsg }, read_nonblock: -> { reader.wait_readable && reader.read_nonblock(9) },
            select: -> { IO.select([reader]) && reader.gets }, urgent: -> { reader.wait_priority(0.001) || reader.gets }
          }
          kinds.each_value { |wait| Heddle.spawn(&wait).tap { writer.write("line\n") }.value }
          kinds.each_value { |wait| Heddle.spawn(&wait).cancel.wait }
          kinds.each_value { |wait| Timeout.timeout(0.001, &wait) rescue Timeout::Error }
          full = Heddle.spawn { loop { writer.write("x" * 100_000) } }
          sleep(0.001)
          full.cancel.wait
          Tempfile.create("heddle") { |file| file.write("x") && file.rewind && file.read }
          system("exit 0") && `true`
          closed = Heddle.spawn { server.accept rescue IOError }
          serving.cancel.wait
          server.close
          closed.wait
        end
        puts "right"
      RUBY
      *, most = lines = File.readlines(log, chomp: true)
      assert_empty lines.grep_v(/\A\d+ polls, \d+ ends of polls\z/)
      assert_match(/\A\d{2,} polls, \d{2,} ends/, most)
    end
  end

  # A check of the test itself: the stand-in kernel refuses polls, and the library records it.
  def test_the_watcher_of_the_ring_notices_refused_polls
    watching_the_ring("IO_URING_REFUSE" => "polls") do |environment, log|
      outcome = in_child(<<~RUBY, env: environment)
        Heddle.run { UNIXSocket.pair.then { |socket, _peer| socket.wait_readable(1) } }
      RUBY
      assert_includes outcome.err, "Errno::EACCES"
      assert_match(/polls, \d+ ends/, File.read(log))
    end
  end

  private

  def read_some(reader, buffer)
    ruby_at_least?("3.2") ? Fiber.scheduler.io_read(reader, buffer, 1, PAGE) : Fiber.scheduler.io_read(reader,
      buffer.slice(PAGE, PAGE), 1)
  end

  # The block ends a read in the middle. Then its page is made inaccessible, bytes arrive, and the loop runs.
  def assert_untouched
    skip "a read of this Ruby's hook does not wait" if IO::Buffer.const_defined?(:VERSION) && IO::Buffer::VERSION >= 3
    with_pair do |reader, writer|
      buffer = IO::Buffer.new(3 * PAGE, IO::Buffer::MAPPED)
      buffer.set_string("." * 3 * PAGE)
      Heddle.run { yield reader, buffer }
      page = Integer(buffer.to_s[/0x\h+/]) + PAGE
      NativeCalls.mprotect(page, PAGE, 0)
      writer.write("late" * 100)
      Heddle.run { 5.times { sleep(0.001) } }
      assert_equal "late" * 100, Heddle.run { reader.readpartial(1000) }, "something has taken the bytes"
      NativeCalls.mprotect(page, PAGE, 3)
      assert_equal "." * 3 * PAGE, buffer.get_string
    end
  end

  def watching_the_ring(settings = {})
    skip "no io_uring here" unless Heddle::Scheduler.backends.include?("uring")
    compiled("watched_io_uring.c", "-shared", "-fPIC") do |library|
      Dir.mktmpdir do |folder|
        log = "#{folder}/log"
        preloaded = [ENV["LD_PRELOAD"], library].compact.join(" ")
        yield({"LD_PRELOAD" => preloaded, "HEDDLE_BACKEND" => "uring", "IO_URING_LOG" => log, **settings}, log)
      end
    end
  end
end
