# frozen_string_literal: true

require "test_helper"
require "support/loop_helpers"

# What a block does to its worker's connection: it writes to it, reads from it, closes it, or is stopped or killed in
# the middle of an answer. The call ends with an error that names the items, in bounded time.
class ProcessesForeignBytesTest < Minitest::Test
  include LoopHelpers

  SECONDS = 3 # within which the parent has to notice

  # Each is called in a worker with the number of its connection's descriptor.
  GARBAGE = {
    "text" => ->(io) { io.syswrite("puts of a library that was told the wrong number\n" * 3) },
    "one byte" => ->(io) { io.syswrite("x") },
    "zeros" => ->(io) { io.syswrite("\0" * 100) },
    "a frame of four gigabytes" => ->(io) { io.syswrite([1, 0, 4 << 30].pack("CQ>Q>")) },
    "an answer for an item of another worker" => ->(io) { io.syswrite(answer(99, "")) },
    "an item" => ->(io) { io.syswrite(frames.append([0, [""]], "".b)) },
    "an answer whose payload does not fit its check" =>
      ->(io) { io.syswrite(answer(0, "a").chop + "b") },
    "a frame beyond the limit" => ->(io) { io.syswrite(frames.header(5 << 30, 0)) }
  }.freeze

  def self.frames = Heddle::Processes.const_get(:Frames)

  def self.answer(index, content) = frames.append([[index], [content]], "".b)

  # In a worker.
  def self.connection
    socket = ObjectSpace.each_object(UNIXSocket).find { |candidate| !candidate.closed? && candidate.fileno > 2 }
    IO.for_fd(socket.fileno, autoclose: false)
  end

  module Behaviour
    GARBAGE.each do |what, write|
      define_method("test_a_block_that_writes_#{what.tr(" ", "_")}_to_its_connection") do
        in_host do
          error = assert_lost do
            Heddle.map(1..2, fibers: 1, processes: 2) do |item|
              write.call(ProcessesForeignBytesTest.connection) if item == 2
              sleep
            end
          end
          assert_equal [2], error.items
          assert_match(
            /\Aworker process \d+ sent a malformed answer .*descriptor \d+.* with one item in work.*item 1 \(2\)/,
            error.message
          )
        end
      end
    end

    # Other answers are on their way: those before the foreign bytes count, and bytes after them are not taken for an
    # answer.
    def test_foreign_bytes_between_answers
      in_host do
        taken = []
        error = assert_lost do
          Heddle::Processes.new(1, fibers: 4).stream(1..1000) do |item|
            ProcessesForeignBytesTest.connection.syswrite("noise") if item == 500
            [item, "x" * 1000]
          end.each { |value| taken << value }
        end
        assert_equal taken.map { |item, _| [item, "x" * 1000] }, taken
        assert_equal [*1..taken.size], taken.map(&:first)
        assert_operator taken.size, :<, 510
        assert_operator error.items.size, :<=, 4
      end
    end

    # The worker that misses bytes ends, and with it the wait for its answers.
    def test_a_block_that_reads_from_its_connection
      in_host do
        reader, writer = IO.pipe
        items = Enumerator.new do |taker|
          taker << 1
          reader.gets
          taker << 2 << 3
        end
        stolen = lambda do |item|
          next item unless item == 1

          connection = UNIXSocket.for_fd(ProcessesForeignBytesTest.connection.fileno)
            .tap { |socket| socket.autoclose = false }
          writer.puts("reads")
          nil while connection.recv_nonblock(3, exception: false) == :wait_readable # before the worker can
          sleep
        end
        capture_subprocess_io { assert_lost { Heddle::Processes.new(1, fibers: 3).map(items, &stolen) } }
      end
    end

    def test_a_block_that_closes_all_descriptors
      in_host do
        error = assert_lost do
          Heddle.map(1..2, fibers: 1, processes: 2) do |item|
            close_all if item == 1
            sleep
          end
        end
        assert_includes error.items, 1
      end
    end

    def test_a_worker_that_is_killed_in_the_middle_of_an_answer
      in_host do
        [-> { Process.kill(:KILL, $$) }, -> { exit!(4) }].each do |ends|
          error = assert_lost do
            Heddle.map([1], processes: 2) do
              whole = ProcessesForeignBytesTest.answer(0, "x" * 100_000)
              ProcessesForeignBytesTest.connection.syswrite(whole.byteslice(0, 50_000))
              ends.call
            end
          end
          assert_equal [1], error.items
          assert_match(/killed by SIGKILL|ended with status 4/, error.message)
        end
      end
    end

    # It gets no SIGTERM until it continues. Its `ensure` blocks run all the same when the call ends.
    def test_a_worker_that_is_stopped
      in_host do
        reader, writer = IO.pipe
        ending = nil
        items = Enumerator.new do |taker|
          taker << 1 << 2
          2.times { reader.gets }
          ending = monotonic
          raise IOError, "of the items"
        end
        assert_raises(IOError) do
          Heddle.map(items, fibers: 1, processes: 2) do |item|
            writer.write("begun\n")
            Process.kill(:STOP, $$) if item == 1
            sleep
          ensure
            writer.write("#{item}\n") # at once: two processes write
          end
        end
        assert_operator monotonic - ending, :<, Heddle::Processes::GRACE * 0.6
        writer.close
        assert_equal %w[1 2], reader.read.split.sort
        assert_no_child
      end
    end

    # What is in transit when it stops: items that the socket does not take, and half an answer.
    def test_a_worker_that_stops_in_the_middle_of_an_answer
      in_host do
        assert_raises(Heddle::DeadlineExceeded) do
          Heddle.deadline(0.3) do
            Heddle::Processes.new(1, fibers: 10).map(Array.new(10) { "x" * 500_000 }.each) do
              whole = ProcessesForeignBytesTest.answer(0, "x" * 1000)
              ProcessesForeignBytesTest.connection.syswrite(whole.byteslice(0, 500))
              Process.kill(:STOP, $$)
            end
          end
        end
        assert_no_child
      end
    end

    # The copy continues after fork, in the middle of the block.
    def test_a_block_that_forks_and_continues_in_both
      in_host do
        values = Heddle.map(1..6, fibers: 3, processes: 2) do |item|
          pid = fork
          pid ? Process.wait2(pid).last.exitstatus && -item : item
        end
        assert_equal [-1, -2, -3, -4, -5, -6], values
        assert_no_child
      end
    end

    def test_values_that_are_too_large_are_refused
      out = assert_child(<<~RUBY)
        frames = Heddle::Processes.const_get(:Frames)
        frames.send(:remove_const, :LARGEST)
        frames.const_set(:LARGEST, 10_000)
        #{host_code % <<~CODE}
          [["x" * 20_000].each, [1]].each do |items|
            Heddle.map(items, processes: 2) { "y" * 20_000 }
          rescue Heddle::NotMarshalable => error
            puts error.message.sub(/\\(.*\\)/, "()")
          end
          begin
            Heddle.map([1], processes: 2) { raise "z" * 20_000 }
          rescue Heddle::NotMarshalable => error
            puts error.message[/its dump has .*/]
          end
          p Heddle.map([1, 2], processes: 2) { "y" * 9000 }.map(&:size)
        CODE
      RUBY
      assert_match(/\Aitem 0 \(\) cannot be sent to a worker process: .*its dump has 200\d\d bytes/, out.lines[0])
      assert_match(
        /\Athe value of item 0 \(\), of the class String, cannot be sent from its worker process: its dump has 200\d\d/,
        out.lines[1]
      )
      assert_match(/its dump has \d+ bytes/, out.lines[2])
      assert_equal "[9000, 9000]\n", out.lines[3]
    end

    # User code runs in Marshal.load: its error says which item it was.
    def test_errors_raised_while_loading_a_value
      in_host do
        {NoMemoryError => "failed to allocate", LoadError => "no such file",
         NotImplementedError => "not here"}.each do |kind, message|
          error = assert_raises(Heddle::NotMarshalable) do
            Heddle.map([1], processes: 2) { Bomb.new(kind, message) }
          end
          assert_match(/\Athe value of item 0 cannot be loaded from its worker process: #{message}/, error.message)
        end
      end
    end

    # Nothing that a worker reports about an error is trusted.
    def test_errors_with_misbehaving_methods
      in_host do
        assert_raises(BadBacktrace) { Heddle.map([1], processes: 2) { raise BadBacktrace } }
        error = assert_raises(BadMessage) { Heddle.map([1], processes: 2) { raise BadMessage } }
        assert_includes error.backtrace.first, __method__.to_s
        assert_no_child
      end
    end

    private

    def close_all
      (3..200).each do |number|
        IO.for_fd(number).close
      rescue # not open, or one of Ruby's own
        nil
      end
    end

    def assert_lost(&work)
      started = monotonic
      # Raised in the thread, and so also where the code under test would wait for ever.
      error = assert_raises(Heddle::WorkerLost) { Heddle.deadline(20, &work) }
      assert_operator monotonic - started, :<, SECONDS
      assert_no_child
      error
    end
  end

  # Raises when it is loaded.
  class Bomb
    def initialize(kind, message)
      @kind, @message = kind, message
    end

    def marshal_dump = [@kind, @message]

    def marshal_load(parts) = raise(*parts)
  end

  # Its backtrace holds an object that Marshal refuses.
  class BadBacktrace < StandardError
    def backtrace = [-> {}]
  end

  # Its message raises an exception beyond StandardError.
  class BadMessage < StandardError
    def message = raise(NotImplementedError, "no message")
  end

  def assert_no_child = assert_raises(Errno::ECHILD) { Process.wait(-1, Process::WNOHANG) }

  class InARun < ProcessesForeignBytesTest
    include Behaviour

    mode :fiber

    private

    def in_host(&block) = Heddle.run(&block)

    def host_code = "Heddle.run do\n%s\nend"
  end

  class Blocking < ProcessesForeignBytesTest
    include Behaviour

    mode :blocking

    private

    def in_host = yield

    def host_code = "%s"
  end
end
