# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"
require "io/wait"
require "logger"
require "tempfile"

# Once a deadline has passed, or a cancel is pending, waits fail, and nothing else: what a `rescue` logs must get into
# its file. Yet a peer that never lets the task wait must not outrun the deadline.
class OnlyWaitsFailTest < Minitest::Test
  include LoopHelpers

  # What may happen to a running task.
  STATES = {
    "a deadline" => ->(work) {
      begin
        Heddle.deadline(0.005) do
          sleep(1)
        rescue Heddle::DeadlineExceeded
          work.call
        end
      rescue Heddle::DeadlineExceeded
        nil
      end
    },
    "a passed deadline that has failed no wait yet" => ->(work) {
      begin
        Heddle.deadline(0.001) { spin_and { work.call } }
      rescue Heddle::DeadlineExceeded
        nil
      end
    },
    # A task that had its turn between the wake-up and this task's turn cancels it.
    "a cancel" => ->(work) {
      queue = Thread::Queue.new
      task = Heddle.spawn { queue.pop && work.call }
      queue << 1
      task.cancel
      task.wait
    },
    "an inherited deadline" => ->(work) {
      task = nil
      begin
        Heddle.deadline(0.001) { task = Heddle.spawn { spin_and { work.call } } }
      rescue Heddle::DeadlineExceeded
        nil
      end
      begin
        task.value
      rescue Heddle::DeadlineExceeded
        nil
      end
    }
  }.freeze

  # Computes until the time is over, and lets the loop read its clock.
  def self.spin_and
    started = Heddle::Clock.now
    nil while Heddle::Clock.now - started < 0.003
    yield
  end

  # Operations that need no wait, and their results.
  DONE_AT_ONCE = {
    "a line in a log" =>
      [->(ends) { Logger.new(ends.file).error("lost?").then { File.read(ends.file.path).include?("lost?") } }, true],
    "many lines" => [->(ends) { 500.times { ends.file.syswrite("line\n") }.then { File.size(ends.file.path) } }, 2500],
    "reading a file" => [->(_) { File.read(__FILE__).bytesize == File.size(__FILE__) }, true],
    "reading a file by lines" => [->(_) { File.foreach(__FILE__).count == File.readlines(__FILE__).size }, true],
    "a place in a file" => [->(_) { File.open(__FILE__) { |file| file.pread(8, 0) } }, "# frozen"],
    "a socket with room" => [->(ends) { ends.near.write("x") }, 1],
    "a pipe with room" => [->(ends) { ends.writer.write("x") }, 1],
    "a socket with bytes" => [->(ends) { ends.near.readpartial(100) }, "hello"],
    "a pipe with bytes" => [->(ends) { ends.reader.readpartial(100) }, "hello"],
    "a line that has arrived" => [->(ends) { ends.reader.read(5) }, "hello"],
    "read_nonblock" => [->(ends) { [ends.near, ends.reader].map { |io| io.read_nonblock(10) } }, %w[hello hello]],
    "write_nonblock" => [->(ends) { [ends.near, ends.writer].map { |io| io.write_nonblock("x") } }, [1, 1]],
    "recv" => [->(ends) { ends.near.recv(10) }, "hello"],
    "wait_readable, ready" => [->(ends) { ends.near.wait_readable == ends.near }, true],
    "wait_readable(1), ready" => [->(ends) { ends.near.wait_readable(1) == ends.near }, true],
    "wait_writable" => [->(ends) { ends.near.wait_writable == ends.near }, true],
    "wait_readable(0)" => [->(ends) { [ends.near, ends.far].map { |io| io.wait_readable(0).nil? } }, [false, true]],
    "IO.select, ready" => [->(ends) { IO.select([ends.near, ends.reader], nil, nil)&.first&.size }, 2],
    "IO.select(0)" => [->(ends) { IO.select([ends.far], nil, nil, 0).inspect }, "nil"],
    "a queue" => [->(_) { Thread::Queue.new.then { |queue| queue.push(1).pop } }, 1],
    "a free lock" => [->(_) { Monitor.new.synchronize { :inside } }, :inside],
    "an accept" => [->(ends) { ends.server.accept.close.inspect }, "nil"],
    "a task's value" => [->(ends) { ends.ended.value }, :ended],
    "a close" => [->(ends) { [ends.near, ends.reader].each(&:close).map(&:closed?) }, [true, true]]
  }.freeze

  STARTS = {
    "a task" => ->(ran) { Heddle.spawn { ran << 1 } },
    "a fiber" => ->(ran) { Fiber.schedule { ran << 1 } },
    "a task of a pool" => ->(ran) { Heddle::FiberPool.new(2).spawn { ran << 1 } }
  }.freeze

  Ends = Struct.new(:near, :far, :reader, :writer, :file, :server, :ended)

  STATES.each do |state, bring_about|
    DONE_AT_ONCE.each do |name, (work, expected)|
      define_method("test_#{name}_after_#{state}".tr(" ,", "_")) do
        with_ends do |ends|
          result = :not_reached
          Heddle.run do
            ends.ended = Heddle.spawn { :ended }
            bring_about.call(-> { result = told { work.call(ends) } })
          end
          assert_equal expected, result
        end
      end
    end

    # A task that starts after a cancel of all tasks would not be cancelled: its run would wait for it.
    STARTS.each do |name, work|
      define_method("test_#{name}_that_is_started_after_#{state}".tr(" ,", "_")) do
        ran = []
        result = nil
        Heddle.run { bring_about.call(-> { result = told { work.call(ran).nil? } }) }
        if state == "a cancel"
          assert_equal [Heddle::Cancellation, []], [result.first, ran]
        else
          assert_equal [false, [1]], [result, ran]
        end
      end
    end

    # An operation that must wait fails at once, however often it is tried; a cancel is raised once.
    define_method("test_waits_fail_after_#{state.tr(" ", "_")}") do
      waits = {
        "sleep" => ->(_) { sleep(1) },
        "readpartial" => ->(ends) { ends.far.readpartial(1) },
        "gets" => ->(ends) { ends.far.gets },
        "readpartial of a pipe" => ->(ends) { ends.empty.readpartial(1) },
        "wait_readable" => ->(ends) { ends.far.wait_readable(5) },
        "select" => ->(ends) { IO.select([ends.far], nil, nil, 5) },
        "queue" => ->(_) { Thread::Queue.new.pop },
        "write" => ->(ends) { ends.near.write("x" * 10_000_000) }
      }
      expected = (state == "a cancel") ? [Heddle::Cancellation] : [Heddle::DeadlineExceeded] * 3
      waits.each do |name, work|
        with_ends do |ends|
          raised = []
          Heddle.run { bring_about.call(-> { expected.size.times { raised << told { work.call(ends) } } }) }
          assert_equal expected, raised.map(&:first), "#{name} after #{state}"
        end
      end
    end
  end

  # Each is always ready, and is repeated for ever.
  ENDLESS = {
    "reading a device" => ->(ends) { ends.zero.readpartial(1000) },
    "read_nonblock of a device" => ->(ends) { ends.zero.read_nonblock(1000) },
    "an exchange with itself" => ->(ends) { ends.far.write("x").then { ends.near.readpartial(10) } },
    "read_nonblock of a socket" =>
      ->(ends) { ends.far.write_nonblock("x").then { ends.near.read_nonblock(10, exception: false) } },
    "reading bytes that never arrive" => ->(ends) { ends.far.read_nonblock(10, exception: false) },
    "reading bytes that never arrive in a pipe" => ->(ends) { ends.empty.read_nonblock(10, exception: false) },
    "asking for bytes that have arrived" => ->(ends) { ends.near.wait_readable },
    "asking for bytes that have not arrived" => ->(ends) { ends.far.wait_readable(0) },
    "selecting a ready descriptor" => ->(ends) { IO.select([ends.near], nil, nil, 1) },
    "selecting a descriptor that is not ready" => ->(ends) { IO.select([ends.far], nil, nil, 0) },
    "starting tasks" => ->(_) { Heddle.spawn { nil } },
    "starting fibers" => ->(_) { Fiber.schedule { nil } }
  }.freeze

  ENDLESS.each do |name, work|
    define_method("test_#{name.tr(" ", "_")}_does_not_outrun_a_deadline") do
      with_ends do |ends|
        late = nil
        Heddle.run do
          assert_raises(Heddle::DeadlineExceeded) do
            Heddle.deadline(0.01) do
              until_over { work.call(ends) }
              late = 0
              loop { ((late += 1) < 1000) ? work.call(ends) : break }
            end
          end
        end
        assert_operator late || 0, :<, 200, "operations after the deadline"
      end
    end

    define_method("test_#{name.tr(" ", "_")}_does_not_outrun_a_cancel") do
      with_ends do |ends|
        Heddle.run do
          count = 0
          queue = Thread::Queue.new
          task = Heddle.spawn { queue.pop && loop { ((count += 1) < 1000) ? work.call(ends) : break } }
          queue << 1
          task.cancel
          task.wait
          assert_equal :cancelled, task.status, "after #{count} operations"
        end
      end
    end
  end

  # The operation that is refused has consumed nothing.
  def test_no_bytes_are_lost_when_a_deadline_is_noticed
    with_ends do |ends|
      ends.near.readpartial(100)
      ends.far.write((0...500).map { |number| format("%04d", number) }.join)
      got = +""
      Heddle.run do
        Heddle.deadline(0.005) { until_over { nil }.then { loop { got << ends.near.readpartial(4) } } }
      rescue Heddle::DeadlineExceeded
        got << ends.near.readpartial(4) until got.bytesize == 2000
      end
      assert_equal (0...500).map { |number| format("%04d", number) }.join, got
    end
  end

  # The helper raises where the thread waits. A write to a file has written all of its bytes.
  def test_a_log_in_a_plain_thread
    Tempfile.create("log") do |file|
      file.sync = true
      assert_raises(Heddle::DeadlineExceeded) do
        Heddle.deadline(0.01) do
          sleep(1)
        rescue => error
          file.write("#{error.class}\n")
          raise
        end
      end
      assert_equal "Heddle::DeadlineExceeded\n", File.read(file.path)
    end
  end

  private

  def with_ends
    near, far = UNIXSocket.pair
    reader, writer = IO.pipe
    file = Tempfile.create("heddle").tap { |io| io.sync = true }
    server = TCPServer.new("127.0.0.1", 0)
    client = TCPSocket.new("127.0.0.1", server.addr[1])
    far.write("hello")
    writer.write("hello")
    ends = Ends.new(near, far, reader, writer, file, server)
    zero = File.open("/dev/zero")
    empty, kept = IO.pipe
    ends.define_singleton_method(:zero) { zero }
    ends.define_singleton_method(:empty) { empty }
    yield ends
  ensure
    File.unlink(file.path) if file
    [near, far, reader, writer, file, server, client, zero, empty, kept].compact.each do |io|
      io.close unless io.closed?
    end
  end

  # Until the deadline in force, of 10 ms at most, has certainly passed.
  def until_over
    started = monotonic
    yield while monotonic - started < 0.015
  end

  def told
    yield
  rescue Exception => error # rubocop:disable Lint/RescueException
    [error.class, error.message]
  end
end
